/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The build's identity, the one value that --version, get_info and the metrics show. */

#include "vmm-version.h"

#include "vmm-version-build.h"
#include "vmm-version-commit.h"

const char *const vmm_version = VMM_VERSION;
const char *const vmm_version_commit = VMM_COMMIT;
const char *const vmm_version_built = VMM_BUILT;
