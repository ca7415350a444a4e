/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "interfaces/vmm.h"

#define TEST_TYPE_LASTING_LAUNCHER (test_lasting_launcher_get_type ())
G_DECLARE_FINAL_TYPE (TestLastingLauncher, test_lasting_launcher, TEST, LASTING_LAUNCHER, GObject)

/* The name that --launcher takes it by. */
#define TEST_LASTING_NAME "lasting"
