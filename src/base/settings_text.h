// SPDX-License-Identifier: Apache-2.0
//
// The table of settings for readers: JSON for programs, Markdown for docs/settings.md, columns for a terminal.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"

namespace tidewire {

// [{"name": …, "unit": …, "default": …, "range": …, "environment": …, "mooncake": …, "value": …, "origin": …, "help":
// …}, …]
std::string settings_json(const std::vector<SettingRow>& rows);
// A page that does not depend on this process's environment: values and origins are left out.
std::string settings_markdown(const std::vector<SettingRow>& rows);
std::string settings_table(const std::vector<SettingRow>& rows);

}  // namespace tidewire
