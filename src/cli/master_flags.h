// SPDX-License-Identifier: Apache-2.0
//
// The flags of `tidewire master`: those of mooncake_master, and a few of our own. A flag comes from the command line
// or, when it is not there, from the file that --config_path names (a JSON object, or lines "name: value").
//
// A flag either works here, or it belongs to a feature that this master does not have. Of the latter the default is
// accepted, and so is any value while the feature's own switch is off, because it means nothing there either;
// everything else is refused by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tidewire::cli {

class MasterFlags {
 public:
  // `arguments`: what follows "master". kInvalidArgument names the flag, its value and the remedy.
  static Result<MasterFlags> parse(const std::vector<std::string>& arguments);

  bool help() const { return help_; }
  // The value as text; the default when nobody set it. The name is a supported flag's.
  const std::string& text(const std::string& name) const;
  bool flag(const std::string& name) const;
  double number(const std::string& name) const;
  // Nanoseconds of a flag that counts milliseconds or seconds.
  Nanos duration(const std::string& name) const;
  // Of a port: 0 for "auto".
  uint16_t port(const std::string& name) const;
  std::vector<std::string> settings() const { return settings_; }

  static std::string help_text();

 private:
  Status take(const std::string& name, const std::string& value, bool from_file);
  Status take_file(const std::string& path);
  Status check() const;

  bool help_ = false;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::string> file_values_;  // those of values_ that came from the file
  std::vector<std::string> settings_;
};

}  // namespace tidewire::cli
