// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/settings_text.h"
#include "cli/commands.h"
#include "cli/doctor_findings.h"

namespace tidewire::cli {
namespace {

struct Options {
  bool json = false, settings = false, markdown = false;
};

void print_settings(const Options& options) {
  const std::vector<SettingRow> rows = describe_settings({});
  fmt::print("{}", options.json       ? settings_json(rows) + "\n"
                   : options.markdown ? settings_markdown(rows)
                                      : settings_table(rows));
  // Markdown is a page for readers elsewhere: it does not depend on this environment.
  if (options.markdown) return;
  if (const Result<Settings> settings = Settings::load({}); !settings.ok()) fail(settings.status().message());
}

void diagnose(const Options& options) {
  const std::vector<Finding> findings = judge(gather_facts());
  fmt::print("{}", options.json ? findings_json(findings) + "\n" : findings_text(findings));
  const bool problem = std::any_of(findings.begin(), findings.end(),
                                   [](const Finding& each) { return each.severity == Severity::kProblem; });
  if (problem) throw CLI::RuntimeError(1);
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "Checks what this machine offers each transport, and says what to do about it");
  const auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "Print JSON");
  CLI::Option* settings =
      command->add_flag("--settings", options->settings, "Print the table of settings with their values and origins");
  command->add_flag("--markdown", options->markdown, "With --settings: the page docs/settings.md")->needs(settings);
  command->footer("Exit status: 0, or 1 when there is a problem (warnings are none).");
  command->callback([options] { options->settings ? print_settings(*options) : diagnose(*options); });
}

}  // namespace tidewire::cli
