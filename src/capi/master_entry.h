// SPDX-License-Identifier: Apache-2.0
//
// What a master's handle stands for.
#pragma once

#include <memory>

#include "store/admin/admin_http.h"
#include "store/master/master_host.h"

namespace tidewire::capi {

struct MasterEntry {
  std::unique_ptr<store::MasterHost> host;
  std::unique_ptr<store::AdminHttp> admin;  // ends first; null = no pages
};

}  // namespace tidewire::capi
