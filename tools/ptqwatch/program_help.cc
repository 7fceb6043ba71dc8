#include "program_help.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

OptionHelp ReadOption(const CLI::Option& option) {
  OptionHelp help;
  for (const std::string& name : option.get_snames()) help.names.push_back(StrCat("-", name));
  for (const std::string& name : option.get_lnames()) help.names.push_back(StrCat("--", name));
  if (option.get_positional()) {
    help.value = option.get_name(/*positional=*/true);
  } else if (option.get_items_expected_max() > 0) {
    help.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  }
  help.text = option.get_description();
  if (!option.get_default_str().empty()) {
    help.text += StrCat(" [", option.get_default_str(), "]");
  }
  help.required = option.get_required();
  help.many = option.get_items_expected_max() > 1;
  return help;
}

CommandHelp ReadCommand(const CLI::App& app) {
  CommandHelp help{.name = app.get_name(),
                   .text = app.get_description(),
                   .notes = app.get_footer(),
                   .options = {},
                   .positionals = {}};
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? help.positionals : help.options).push_back(ReadOption(*option));
  }
  return help;
}

}  // namespace

std::vector<std::string> OptionHelp::words() const {
  std::vector<std::string> words;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(value, '|'))) {
    const bool lower = std::all_of(word.begin(), word.end(),
                                   [](unsigned char c) { return absl::ascii_islower(c); });
    if (lower && !word.empty()) words.push_back(word);
  }
  return words;
}

bool OptionHelp::takes_path() const {
  return value == "FILE" || value == "RUN" || value == "RUN_DIR" || value == "JOURNAL";
}

ProgramHelp ReadHelp(const CLI::App& app) {
  ProgramHelp help{.program = ReadCommand(app), .commands = {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    help.commands.push_back(ReadCommand(*command));
  }
  return help;
}

}  // namespace ptqwatch::internal
