// SPDX-License-Identifier: Apache-2.0
//
// The table of `tidewire master`'s flags; see master_flags.h.
#pragma once

#include <string>
#include <vector>

namespace tidewire::cli {

enum class FlagKind { kText, kBool, kInteger, kNumber, kPort, kMilliseconds, kSeconds };
enum class FlagUse {
  kWorks,
  kIgnored,  // has no counterpart and changes nothing that can be relied on: numbers of threads, the logs of another
             // library
  kMissing,  // belongs to a feature that is not there
};

struct FlagRow {
  const char* name;
  FlagKind kind;
  const char* value;  // the default
  FlagUse use;
  const char* needs = "";  // the switch of its feature: while that is off, any value is as good as the default
  const char* help = "";
};

const std::vector<FlagRow>& master_flag_table();
const FlagRow* find_master_flag(const std::string& name);

}  // namespace tidewire::cli
