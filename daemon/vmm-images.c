/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The catalogue: which images the image directory holds.
 *
 * An image is a pair of files `<id>_<version>.efi` and `.raw`. What else the directory holds adds
 * to it: a policy of its own or the shared one, the OS updates, and the Kubernetes versions that
 * the manifest of their folder names. The directory is read when the daemon starts or is asked to;
 * a scan that fails leaves the list as it was. What cannot be used is a warning and no image.
 */

#include "config.h"

#include "vmm-images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "interfaces/vmm-error.h"
#include "vmm-file.h"
#include "vmm-json.h"
#include "vmm-log.h"

#define MAX_IMAGES 4096
#define MAX_KUBERNETES_VERSIONS 4096
#define MAX_POLICY_BYTES (1024 * 1024)
#define MAX_MANIFEST_BYTES (1024 * 1024)

#define UKI_SUFFIX ".efi"
#define DISK_SUFFIX ".raw"
#define POLICY_SUFFIX ".policy.json"
#define SHARED_POLICY "policy.json"
#define SYSUPDATE_FOLDER "sysupdate"
#define KUBERNETES_MANIFEST "sysupdate/kubernetes/SHA256SUMS"
#define KUBERNETES_PREFIX "kubernetes_"

struct _VmmImages
{
  GObject parent_instance;

  char *directory;
  GPtrArray *images; /* of VmmImage, by id, then version descending */
};

G_DEFINE_FINAL_TYPE (VmmImages, vmm_images, G_TYPE_OBJECT)

/* What a scan finds once for all images. */
typedef struct
{
  const char *directory;
  char *sysupdate_dir;
  GStrv kubernetes_versions;
  char *shared_policy;
} Shared;

static void
image_free (VmmImage *image)
{
  g_free (image->id);
  g_free (image->version);
  g_free (image->reference);
  g_free (image->uki);
  g_free (image->disk);
  g_free (image->sysupdate_dir);
  g_strfreev (image->kubernetes_versions);
  g_free (image->policy);
  g_free (image);
}

static void
shared_clear (Shared *shared)
{
  g_free (shared->sysupdate_dir);
  g_strfreev (shared->kubernetes_versions);
  g_free (shared->shared_policy);
}

static gboolean
is_regular (const char *path)
{
  struct stat status;

  return stat (path, &status) == 0 && S_ISREG (status.st_mode);
}

static int
compare_versions_descending (gconstpointer a, gconstpointer b)
{
  const char *first = *(const char *const *) a;
  const char *second = *(const char *const *) b;
  int order = vmm_version_compare (second, first);

  return order != 0 ? order : strcmp (second, first);
}

/* `kubernetes_<v>.raw`, with the star that marks binary files in front or not. */
static char *
kubernetes_version_of (const char *file)
{
  const char *version;
  gsize length;

  if (file[0] == '*')
    file++;
  if (!g_str_has_prefix (file, KUBERNETES_PREFIX) || !g_str_has_suffix (file, DISK_SUFFIX))
    return NULL;

  version = file + strlen (KUBERNETES_PREFIX);
  length = strlen (version);
  if (length <= strlen (DISK_SUFFIX) || strchr (version, '/') != NULL)
    return NULL;
  return g_strndup (version, length - strlen (DISK_SUFFIX));
}

/* The last field of a line of at least two, NULL for any other line. */
static const char *
last_field (char *line)
{
  char *field;

  g_strstrip (line);
  field = line + strlen (line);
  while (field > line && !g_ascii_isspace (field[-1]))
    field--;
  return field > line ? field : NULL;
}

static void
add_version (GPtrArray *versions, char *version)
{
  if (version == NULL)
    return;
  if (versions->len >= MAX_KUBERNETES_VERSIONS
      || g_ptr_array_find_with_equal_func (versions, version, g_str_equal, NULL))
    g_free (version);
  else
    g_ptr_array_add (versions, version);
}

/* Follows links, which vmm_file_read() does not: a mounted ConfigMap is nothing but links. NULL
 * without an error when there is no such file. */
static char *
read_text (const char *path, gsize limit, GError **error)
{
  g_autofree char *real = realpath (path, NULL);
  g_autoptr (GBytes) content = NULL;
  gconstpointer data;
  gsize length;

  if (real == NULL && errno == ENOENT)
    return NULL;
  content = vmm_file_read (real != NULL ? real : path, limit, error);
  if (content == NULL)
    return NULL;

  data = g_bytes_get_data (content, &length);
  /* Its text would end there, and what is behind would count for nothing. */
  if (length > 0 && memchr (data, '\0', length) != NULL)
    {
      vmm_set_error (error, VMM_ERROR_INVALID_REQUEST, "there is a zero byte in it");
      return NULL;
    }
  return g_strndup (data != NULL ? data : "", length);
}

/* The list comes from the manifest, not from the files that are there. */
static GStrv
read_kubernetes_versions (const char *directory)
{
  g_autofree char *path = g_build_filename (directory, KUBERNETES_MANIFEST, NULL);
  g_autoptr (GPtrArray) versions = g_ptr_array_new ();
  g_autoptr (GError) error = NULL;
  g_autofree char *text = read_text (path, MAX_MANIFEST_BYTES, &error);
  g_auto (GStrv) lines = NULL;

  if (error != NULL)
    vmm_log_warning ("kubernetes manifest not read", "path", path, "error", error->message, NULL);
  if (text == NULL)
    return g_new0 (char *, 1);
  if (!g_utf8_validate (text, -1, NULL))
    {
      vmm_log_warning ("kubernetes manifest is not UTF-8", "path", path, NULL);
      return g_new0 (char *, 1);
    }
  lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++)
    {
      const char *file = last_field (lines[i]);

      if (file != NULL)
        add_version (versions, kubernetes_version_of (file));
    }
  g_ptr_array_sort (versions, compare_versions_descending);
  g_ptr_array_add (versions, NULL);
  return (GStrv) g_ptr_array_free (g_steal_pointer (&versions), FALSE);
}

/* A policy file that can be used: a JSON object. Absent is fine, anything else is a warning. */
static char *
read_policy (const char *path)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = read_text (path, MAX_POLICY_BYTES, &error);
  g_autoptr (JsonObject) object = NULL;

  if (text != NULL)
    object = vmm_json_parse_object (text, strlen (text), &error);
  if (object != NULL)
    return g_steal_pointer (&text);

  if (error != NULL)
    vmm_log_warning ("policy not used", "path", path, "error", error->message, NULL);
  return NULL;
}

/* Whether a member that says which image a policy is for agrees, or says nothing. */
static gboolean
agrees (JsonObject *policy, const char *member, const char *wanted)
{
  const char *value = NULL;

  return vmm_json_get_string (policy, member, "", &value, NULL)
         && (value[0] == '\0' || strcmp (value, wanted) == 0);
}

static gboolean
shared_policy_applies (const char *policy, const char *id, const char *version)
{
  g_autoptr (JsonObject) object = vmm_json_parse_object (policy, strlen (policy), NULL);

  return object != NULL && agrees (object, "image_id", id)
         && agrees (object, "image_version", version);
}

static char *
choose_policy (const Shared *shared, const VmmImage *image)
{
  g_autofree char *name = g_strconcat (image->reference, POLICY_SUFFIX, NULL);
  g_autofree char *path = g_build_filename (shared->directory, name, NULL);
  char *own = read_policy (path);

  if (own != NULL)
    return own;
  if (shared->shared_policy != NULL
      && shared_policy_applies (shared->shared_policy, image->id, image->version))
    return g_strdup (shared->shared_policy);
  return NULL;
}

static char *
path_in (const char *directory, const char *stem, const char *suffix)
{
  g_autofree char *name = g_strconcat (stem, suffix, NULL);

  return g_canonicalize_filename (name, directory);
}

static void
warn_about (const char *why, const char *name)
{
  g_autofree char *shown = vmm_log_escape (name, 255);

  vmm_log_warning (why, "file", shown, NULL);
}

/* NULL, with a warning, when the file is no half of a pair. */
static VmmImage *
image_of_uki (const Shared *shared, const char *name)
{
  g_autofree char *stem = g_strndup (name, strlen (name) - strlen (UKI_SUFFIX));
  g_autofree char *uki = path_in (shared->directory, stem, UKI_SUFFIX);
  g_autofree char *disk = path_in (shared->directory, stem, DISK_SUFFIX);
  const char *underscore = strrchr (stem, '_');
  VmmImage *image;

  if (underscore == NULL || underscore == stem || underscore[1] == '\0'
      || !g_utf8_validate (stem, -1, NULL))
    {
      warn_about ("image skipped: its name is not <id>_<version>.efi", name);
      return NULL;
    }
  if (!is_regular (uki))
    {
      warn_about ("image skipped: it is not a regular file", name);
      return NULL;
    }
  if (!is_regular (disk))
    {
      warn_about ("image skipped: it has no disk of the same name", name);
      return NULL;
    }

  image = g_new0 (VmmImage, 1);
  image->id = g_strndup (stem, (gsize) (underscore - stem));
  image->version = g_strdup (underscore + 1);
  image->reference = g_steal_pointer (&stem);
  image->uki = g_steal_pointer (&uki);
  image->disk = g_steal_pointer (&disk);
  image->sysupdate_dir = g_strdup (shared->sysupdate_dir);
  image->kubernetes_versions = g_strdupv (shared->kubernetes_versions);
  image->policy = choose_policy (shared, image);
  return image;
}

static int
compare_images (gconstpointer a, gconstpointer b)
{
  const VmmImage *first = *(const VmmImage *const *) a;
  const VmmImage *second = *(const VmmImage *const *) b;
  int order = strcmp (first->id, second->id);

  if (order == 0)
    order = vmm_version_compare (second->version, first->version);
  return order != 0 ? order : strcmp (second->version, first->version);
}

static gboolean
is_uki (const char *directory, const char *name)
{
  g_autofree char *path = NULL;

  if (!g_str_has_suffix (name, UKI_SUFFIX))
    return FALSE;
  path = g_build_filename (directory, name, NULL);
  return !g_file_test (path, G_FILE_TEST_IS_DIR);
}

static GPtrArray *
read_images (const Shared *shared, GDir *dir)
{
  GPtrArray *images = g_ptr_array_new_with_free_func ((GDestroyNotify) image_free);
  const char *name;

  while ((name = g_dir_read_name (dir)) != NULL)
    {
      VmmImage *image;

      if (!is_uki (shared->directory, name))
        continue;
      if (images->len == MAX_IMAGES)
        {
          vmm_log_warning ("too many images: the rest is left out", "directory", shared->directory,
                           NULL);
          break;
        }
      image = image_of_uki (shared, name);
      if (image != NULL)
        g_ptr_array_add (images, image);
    }
  g_ptr_array_sort (images, compare_images);
  return images;
}

/* Reads the directory anew. An error leaves the list as it was; entries of it are valid until then.
 */
gboolean
vmm_images_scan (VmmImages *self, GError **error)
{
  g_autofree char *sysupdate = g_build_filename (self->directory, SYSUPDATE_FOLDER, NULL);
  g_autofree char *policy = g_build_filename (self->directory, SHARED_POLICY, NULL);
  g_autoptr (GError) cause = NULL;
  g_autoptr (GDir) dir = g_dir_open (self->directory, 0, &cause);
  Shared shared = { .directory = self->directory };

  if (dir == NULL)
    {
      vmm_set_error (error, VMM_ERROR_INTERNAL, "%s", cause->message);
      return FALSE;
    }

  if (g_file_test (sysupdate, G_FILE_TEST_IS_DIR))
    shared.sysupdate_dir = g_steal_pointer (&sysupdate);
  shared.kubernetes_versions = read_kubernetes_versions (self->directory);
  shared.shared_policy = read_policy (policy);

  g_ptr_array_unref (self->images);
  self->images = read_images (&shared, dir);
  shared_clear (&shared);
  return TRUE;
}

static const VmmImage *
find_default (VmmImages *self)
{
  const VmmImage *best = NULL;

  for (guint i = 0; i < self->images->len; i++)
    {
      const VmmImage *image = g_ptr_array_index (self->images, i);

      if (best == NULL || vmm_version_compare (image->version, best->version) > 0)
        best = image;
    }
  return best;
}

const VmmImage *
vmm_images_lookup (VmmImages *self, const char *reference, GError **error)
{
  g_return_val_if_fail (VMM_IS_IMAGES (self), NULL);

  if (self->images->len == 0)
    {
      vmm_set_error (error, VMM_ERROR_NOT_FOUND, "no images in %s", self->directory);
      return NULL;
    }
  if (reference == NULL || reference[0] == '\0')
    return find_default (self);

  for (guint i = 0; i < self->images->len; i++)
    {
      const VmmImage *image = g_ptr_array_index (self->images, i);

      if (strcmp (image->reference, reference) == 0 || strcmp (image->id, reference) == 0)
        return image;
    }
  vmm_set_error (error, VMM_ERROR_NOT_FOUND, "image \"%s\"", reference);
  return NULL;
}

guint
vmm_images_get_n_images (VmmImages *self)
{
  g_return_val_if_fail (VMM_IS_IMAGES (self), 0);

  return self->images->len;
}

static JsonArray *
strv_to_array (const char *const *strv)
{
  JsonArray *array = json_array_new ();

  for (guint i = 0; strv[i] != NULL; i++)
    json_array_add_string_element (array, strv[i]);
  return array;
}

JsonNode *
vmm_image_to_json (const VmmImage *image)
{
  JsonObject *object = json_object_new ();
  JsonNode *policy = NULL;

  json_object_set_string_member (object, "id", image->id);
  json_object_set_string_member (object, "version", image->version);
  json_object_set_string_member (object, "uki", image->uki);
  json_object_set_string_member (object, "disk", image->disk);
  vmm_json_set_string_unless_empty (object, "sysupdateDir", image->sysupdate_dir);
  if (image->kubernetes_versions[0] != NULL)
    json_object_set_array_member (object, "kubernetesVersions",
                                  strv_to_array ((const char *const *) image->kubernetes_versions));
  if (image->policy != NULL)
    policy = vmm_json_parse (image->policy, strlen (image->policy), NULL);
  if (policy != NULL)
    json_object_set_member (object, "policy", policy);
  return vmm_json_node_take_object (object);
}

JsonNode *
vmm_images_to_json (VmmImages *self)
{
  JsonArray *array = json_array_new ();

  g_return_val_if_fail (VMM_IS_IMAGES (self), NULL);

  for (guint i = 0; i < self->images->len; i++)
    json_array_add_element (array, vmm_image_to_json (g_ptr_array_index (self->images, i)));
  return vmm_json_node_take_array (array);
}

static void
vmm_images_finalize (GObject *object)
{
  VmmImages *self = VMM_IMAGES (object);

  g_free (self->directory);
  g_ptr_array_unref (self->images);
  G_OBJECT_CLASS (vmm_images_parent_class)->finalize (object);
}

static void
vmm_images_class_init (VmmImagesClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = vmm_images_finalize;
}

static void
vmm_images_init (VmmImages *self)
{
  self->images = g_ptr_array_new_with_free_func ((GDestroyNotify) image_free);
}

VmmImages *
vmm_images_new (const char *directory)
{
  VmmImages *self = g_object_new (VMM_TYPE_IMAGES, NULL);

  self->directory = g_canonicalize_filename (directory, NULL);
  return self;
}
