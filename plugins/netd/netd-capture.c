/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packet capture into a file that the daemon opened. Records gather in a buffer and are written
 * once a turn, so that a capture costs little more than a copy of each frame.
 *
 * The file always ends with a whole record: one that would pass the bound is not begun, and what a
 * failed write left behind is cut off again. Either is the end of the capture.
 */
#include "netd-capture.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <gio/gio.h>

/* savefile(5) */
#define SAVEFILE_MAGIC 0xa1b2c3d4u /* microseconds, in the byte order of this host */
#define SAVEFILE_MAJOR 2
#define SAVEFILE_MINOR 4
#define SNAP_LENGTH 262144
#define LINK_TYPE_ETHERNET 1

#define BUFFER_SIZE (64 * 1024)

typedef struct
{
  guint32 magic;
  guint16 major;
  guint16 minor;
  guint32 reserved[2];
  guint32 snap_length;
  guint32 link_type;
} FileHeader;

typedef struct
{
  guint32 seconds;
  guint32 microseconds;
  guint32 captured_length;
  guint32 length;
} RecordHeader;

struct _NetdCapture
{
  int fd;
  guint64 max_bytes;
  guint64 written;  /* whole records that are in the file */
  gsize used;       /* of the buffer */
  gboolean is_full; /* or broken: nothing follows */
  guint8 buffer[BUFFER_SIZE];
};

static gboolean
write_all (int fd, const guint8 *bytes, gsize length)
{
  while (length > 0)
    {
      gssize n = write (fd, bytes, length);

      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return FALSE;
      bytes += n;
      length -= n;
    }
  return TRUE;
}

static void
write_out (NetdCapture *self, const void *bytes, gsize length)
{
  if (self->is_full || length == 0)
    return;
  if (write_all (self->fd, bytes, length))
    {
      self->written += length;
      return;
    }
  self->is_full = TRUE;
  g_warning ("the capture ends: cannot write to its file: %s", g_strerror (errno));
  if (ftruncate (self->fd, self->written) < 0)
    g_warning ("the last record of the capture may be cut: %s", g_strerror (errno));
}

void
netd_capture_flush (NetdCapture *self)
{
  write_out (self, self->buffer, self->used);
  self->used = 0;
}

static void
gather (NetdCapture *self, const void *bytes, gsize length)
{
  memcpy (self->buffer + self->used, bytes, length);
  self->used += length;
}

static gboolean
check (int fd, guint64 max_bytes, GError **error)
{
  struct stat info;

  if (max_bytes < sizeof (FileHeader) || max_bytes > G_MAXINT64)
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                   "a capture needs a bound of at least %" G_GSIZE_FORMAT " bytes",
                   sizeof (FileHeader));
      return FALSE;
    }
  /* Anything else could make netd wait for its reader. */
  if (fstat (fd, &info) < 0 || !S_ISREG (info.st_mode))
    {
      g_set_error (error, G_IO_ERROR, G_IO_ERROR_NOT_REGULAR_FILE,
                   "a capture can only be written to a regular file");
      return FALSE;
    }
  return TRUE;
}

NetdCapture *
netd_capture_new (int fd, guint64 max_bytes, GError **error)
{
  FileHeader header = {
    .magic = SAVEFILE_MAGIC,
    .major = SAVEFILE_MAJOR,
    .minor = SAVEFILE_MINOR,
    .snap_length = SNAP_LENGTH,
    .link_type = LINK_TYPE_ETHERNET,
  };
  NetdCapture *self;

  if (!check (fd, max_bytes, error))
    {
      close (fd);
      return NULL;
    }
  if (ftruncate (fd, 0) < 0 || lseek (fd, 0, SEEK_SET) < 0
      || !write_all (fd, (const guint8 *) &header, sizeof header))
    {
      int saved_errno = errno;

      g_set_error (error, G_IO_ERROR, g_io_error_from_errno (saved_errno),
                   "cannot begin the capture: %s", g_strerror (saved_errno));
      close (fd);
      return NULL;
    }
  self = g_new (NetdCapture, 1);
  self->fd = fd;
  self->max_bytes = max_bytes;
  self->written = sizeof header;
  self->used = 0;
  self->is_full = FALSE;
  return self;
}

void
netd_capture_free (NetdCapture *self)
{
  netd_capture_flush (self);
  close (self->fd);
  g_free (self);
}

void
netd_capture_frame (NetdCapture *self, const void *frame, gsize length)
{
  gsize captured = MIN (length, SNAP_LENGTH);
  struct timespec now;
  RecordHeader header;

  if (self->is_full)
    return;
  if (self->written + self->used + sizeof header + captured > self->max_bytes)
    {
      netd_capture_flush (self);
      self->is_full = TRUE;
      return;
    }
  clock_gettime (CLOCK_REALTIME, &now);
  header = (RecordHeader){
    .seconds = (guint32) now.tv_sec,
    .microseconds = (guint32) (now.tv_nsec / 1000),
    .captured_length = (guint32) captured,
    .length = (guint32) length,
  };
  if (self->used + sizeof header + captured > BUFFER_SIZE)
    netd_capture_flush (self);
  if (sizeof header + captured > BUFFER_SIZE)
    {
      g_autofree guint8 *record = g_malloc (sizeof header + captured);

      memcpy (record, &header, sizeof header);
      memcpy (record + sizeof header, frame, captured);
      write_out (self, record, sizeof header + captured);
      return;
    }
  gather (self, &header, sizeof header);
  gather (self, frame, captured);
}

gboolean
netd_capture_is_full (NetdCapture *self)
{
  return self->is_full;
}
