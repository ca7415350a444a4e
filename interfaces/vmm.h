/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "vmm-attachment.h"
#include "vmm-attestor.h"
#include "vmm-backend.h"
#include "vmm-error.h"
#include "vmm-helper.h"
#include "vmm-launcher.h"
#include "vmm-network-backend.h"
#include "vmm-plugin.h"
#include "vmm-process.h"
#include "vmm-storage-backend.h"
