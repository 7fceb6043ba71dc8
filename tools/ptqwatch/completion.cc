#include "completion.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// For single quotes of a POSIX shell and of zsh.
std::string Quoted(const std::string& text) {
  return StrCat("'", absl::StrReplaceAll(text, {{"'", R"('\'')"}}), "'");
}

std::string Names(const std::vector<CommandHelp>& commands, const char* separator) {
  return absl::StrJoin(commands, separator, [](std::string* out, const CommandHelp& command) {
    out->append(command.name);
  });
}

std::string OptionNames(const CommandHelp& command) {
  std::vector<std::string> names;
  for (const OptionHelp& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return absl::StrJoin(names, " ");
}

// What completes a value in bash.
std::string BashValue(const OptionHelp& value) {
  if (value.takes_path()) return "COMPREPLY=($(compgen -f -- \"$current\"))";
  return StrCat("COMPREPLY=($(compgen -W '", absl::StrJoin(value.words(), " "),
                "' -- \"$current\"))");
}

// A case for each option with a value: "watch --ca" and so on.
std::string BashOptionValues(const CommandHelp& command) {
  std::string cases;
  for (const OptionHelp& option : command.options) {
    if (option.value.empty()) continue;
    const std::string pattern =
        absl::StrJoin(option.names, "|", [&](std::string* out, const std::string& name) {
          out->append(StrCat("'", command.name, " ", name, "'"));
        });
    cases += StrCat("    ", pattern, ") ", BashValue(option), "; return ;;\n");
  }
  return cases;
}

std::string BashArguments(const CommandHelp& command) {
  return StrCat("    ", command.name, ")\n      [[ $current == -* ]] && options='",
                OptionNames(command), "'",
                command.positionals.empty()
                    ? ""
                    : StrCat(" || { ", BashValue(command.positionals.front()), "; return; }"),
                " ;;\n");
}

// A description as zsh's _arguments takes it.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"\\", R"(\\)"}, {"[", R"(\[)"}, {"]", R"(\])"}, {":", R"(\:)"}, {"\n", " "}});
}

std::string ZshValue(const OptionHelp& value) {
  std::string action = " ";
  if (value.takes_path()) action = "_files";
  if (!value.words().empty()) action = StrCat("(", absl::StrJoin(value.words(), " "), ")");
  return StrCat(":", ZshText(value.value), ":", action);
}

std::string ZshSpecs(const CommandHelp& command) {
  std::string specs;
  for (const OptionHelp& option : command.options) {
    for (const std::string& name : option.names) {
      const std::string spec = StrCat(name, "[", ZshText(option.text), "]",
                                      option.value.empty() ? "" : ZshValue(option));
      specs += StrCat(" \\\n        ", Quoted(spec));
    }
  }
  for (const OptionHelp& positional : command.positionals) {
    specs +=
        StrCat(" \\\n        ", Quoted(StrCat(positional.many ? "*" : "", ZshValue(positional))));
  }
  return specs;
}

// For single quotes of fish.
std::string FishQuoted(const std::string& text) {
  return StrCat("'", absl::StrReplaceAll(text, {{"\\", R"(\\)"}, {"'", R"(\')"}, {"\n", " "}}),
                "'");
}

std::string FishOption(const std::string& program, const std::string& condition,
                       const OptionHelp& option) {
  std::string line = StrCat("complete -c ", program, " -n ", FishQuoted(condition));
  for (const std::string& name : option.names) {
    line +=
        name.starts_with("--") ? StrCat(" -l ", name.substr(2)) : StrCat(" -s ", name.substr(1));
  }
  if (!option.value.empty()) {
    line += option.takes_path() ? " -r -F" : " -x";
    if (!option.words().empty()) {
      line += StrCat(" -a ", FishQuoted(absl::StrJoin(option.words(), " ")));
    }
  }
  return StrCat(line, " -d ", FishQuoted(option.text), "\n");
}

}  // namespace

std::string BashCompletion(const ProgramHelp& help) {
  const std::string& program = help.program.name;
  std::string values;
  std::string arguments;
  for (const CommandHelp& command : help.commands) {
    values += BashOptionValues(command);
    arguments += BashArguments(command);
  }
  return StrCat("# Completion of ", program, " for bash, made by `", program,
                " completion bash`.\n_", program, "() {\n",
                R"(  local current=${COMP_WORDS[COMP_CWORD]} command= word options=
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      )",
                Names(help.commands, "|"), R"() command=$word; break ;;
    esac
  done
  case "$command ${COMP_WORDS[COMP_CWORD-1]}" in
)",
                values, R"(  esac
  case $command in
    '') options=')",
                Names(help.commands, " "), " ", OptionNames(help.program), "' ;;\n", arguments,
                R"(  esac
  COMPREPLY=($(compgen -W "$options" -- "$current"))
}
complete -o filenames -F _)",
                program, " ", program, "\n");
}

std::string ZshCompletion(const ProgramHelp& help) {
  const std::string& program = help.program.name;
  std::string commands;
  std::string cases;
  for (const CommandHelp& command : help.commands) {
    commands += StrCat("    ", Quoted(StrCat(command.name, ":", ZshText(command.text))), "\n");
    cases += StrCat("    ", command.name, ")\n      _arguments", ZshSpecs(command), " ;;\n");
  }
  return StrCat("#compdef ", program, "\n# Completion of ", program, " for zsh, made by `", program,
                " completion zsh`.\n_", program, "() {\n  local -a commands=(\n", commands, R"(  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    _arguments)",
                ZshSpecs(help.program), R"(
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
)",
                cases, "  esac\n}\nif [[ $funcstack[1] == _", program, " ]]; then\n  _", program,
                " \"$@\"\nelse\n  compdef _", program, " ", program, "\nfi\n");
}

std::string FishCompletion(const ProgramHelp& help) {
  const std::string& program = help.program.name;
  const std::string none = StrCat("not __fish_seen_subcommand_from ", Names(help.commands, " "));
  std::string script = StrCat("# Completion of ", program, " for fish, made by `", program,
                              " completion fish`.\ncomplete -c ", program, " -f\n");
  for (const OptionHelp& option : help.program.options) script += FishOption(program, none, option);
  for (const CommandHelp& command : help.commands) {
    script += StrCat("complete -c ", program, " -n ", FishQuoted(none), " -a ", command.name,
                     " -d ", FishQuoted(command.text), "\n");
    const std::string seen = StrCat("__fish_seen_subcommand_from ", command.name);
    for (const OptionHelp& option : command.options) script += FishOption(program, seen, option);
    for (const OptionHelp& positional : command.positionals) {
      script += StrCat("complete -c ", program, " -n ", FishQuoted(seen),
                       positional.takes_path() ? " -F" : "");
      if (!positional.words().empty()) {
        script += StrCat(" -a ", FishQuoted(absl::StrJoin(positional.words(), " ")));
      }
      script += "\n";
    }
  }
  return script;
}

}  // namespace ptqwatch::internal
