/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Which file it is: as long as all of this stays, what was learnt of it stays true. */
typedef struct
{
  char *path; /* NULL when there is none */
  guint64 device;
  guint64 inode;
  guint64 size;
  gint64 modified_ns;
} VmmHostFile;

void vmm_host_file_clear (VmmHostFile *self);
void vmm_host_file_copy (const VmmHostFile *self, VmmHostFile *copy);
gboolean vmm_host_file_equal (const VmmHostFile *a, const VmmHostFile *b);

typedef struct
{
  char *path;
  gboolean accessible;
  char *error; /* when it is not */
  guint64 inode; /* which node it is: 0 for one that cannot be opened */
  gint64 changed_ns;
} VmmHostDevice;

typedef enum
{
  VMM_HOST_PROGRAM_QEMU,
  VMM_HOST_PROGRAM_SWTPM,
  VMM_HOST_PROGRAM_SWTPM_SETUP,
  VMM_HOST_PROGRAM_SYSTEMD,
  VMM_HOST_PROGRAM_DPKG,
  VMM_HOST_PROGRAM_VSOCK,
  VMM_HOST_PROGRAM_MONITOR,
  VMM_HOST_N_PROGRAMS,
} VmmHostProgram;

const char *vmm_host_program_get_name (VmmHostProgram program);

/* Where to look; tests look elsewhere. */
typedef struct
{
  char *kvm_path;
  char *vsock_path;
  char *firmware_path;
  char *storage_providers_path;
} VmmHostPlaces;

/* What can be learnt without running anything. */
typedef struct
{
  char *hostname; /* NULL when it cannot be read */
  char *kernel;
  guint cpus;
  guint64 memory_bytes;
  VmmHostDevice kvm;
  VmmHostDevice vsock;
  VmmHostFile firmware; /* no path when it is not a readable regular file */
  VmmHostFile programs[VMM_HOST_N_PROGRAMS];
  GStrv storage_providers;
} VmmHostFacts;

/* Blocks: for worker threads and for the start. */
VmmHostFacts *vmm_host_facts_read (const VmmHostPlaces *places);
void vmm_host_facts_free (VmmHostFacts *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (VmmHostFacts, vmm_host_facts_free)

VmmHostPlaces *vmm_host_places_copy (const VmmHostPlaces *self);
void vmm_host_places_free (VmmHostPlaces *self);
/* Whether a device can be opened for reading and writing. */
void vmm_host_device_check (const char *path, VmmHostDevice *device);
void vmm_host_device_clear (VmmHostDevice *device);
void vmm_host_device_copy (const VmmHostDevice *device, VmmHostDevice *copy);
gboolean vmm_host_device_equal (const VmmHostDevice *a, const VmmHostDevice *b);

G_END_DECLS
