/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* Sends as send(2) does, without waiting, and hands over a copy of @fd with it unless that is -1. */
gssize netd_descriptor_send (int socket, const void *data, gsize length, int fd);
