// SPDX-License-Identifier: Apache-2.0
//
// What the facts mean for each transport, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor_facts.h"

namespace tidewire::cli {

enum class Severity {
  kOk,       // works
  kInfo,     // absent, and nothing is wrong with that
  kWarning,  // works worse than it could, or will fail under load
  kProblem,  // something that was asked for can't work
};
const char* severity_name(Severity severity);  // "ok", "info", "warning", "problem"

struct Finding {
  std::string id;    // short and constant: "memlock"
  std::string area;  // "settings", "tcp", "same host", "fabric", "verbs", "cuda", "neuron"
  Severity severity = Severity::kOk;
  std::string text;
  std::string remedy;  // empty where nothing is to be done
};

// In the order in which they are printed: by area.
std::vector<Finding> judge(const Facts& facts);

std::string findings_json(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);

}  // namespace tidewire::cli
