#include "man_page.h"

#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/strings.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kExitStatus = R"(.SH EXIT STATUS
0 where the command did what it was asked, 1 where it failed, 2 for a mistake on the command line,
128 and the number of the signal that ended it. Standard error says why in a line.
)";

constexpr std::string_view kSeeAlso = R"(.SH SEE ALSO
The documents of ptqwatch: docs/operations.md (servers, commands, alerts), docs/metrics.md,
docs/verdicts.md.
)";

// Text in which nothing is a request or an escape of roff.
std::string Roff(std::string_view text) {
  std::string roff;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) roff += "\\&";
    begins_line = c == '\n';
    switch (c) {
      case '\\':
        roff += "\\e";
        break;
      case '-':
        roff += "\\-";  // one to copy, not a hyphen
        break;
      case '\'':
        roff += "\\(aq";
        break;
      case '^':
        roff += "\\(ha";
        break;
      case '~':
        roff += "\\(ti";
        break;
      default:
        roff += c;
    }
  }
  return roff;
}

std::string Bold(std::string_view text) { return StrCat("\\fB", Roff(text), "\\fR"); }
std::string Italic(std::string_view text) { return StrCat("\\fI", Roff(text), "\\fR"); }

std::string Synopsis(std::string_view program, const CommandHelp& command) {
  std::string line = StrCat(Bold(program), " ", Bold(command.name), " [", Italic("OPTIONS"), "]");
  for (const OptionHelp& positional : command.positionals) {
    line += StrCat(" ", Italic(positional.value), positional.many ? " ..." : "");
  }
  return line;
}

std::string OptionEntry(const OptionHelp& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(Bold(name));
  std::string tag = absl::StrJoin(names, ", ");
  if (!option.value.empty()) tag += StrCat(tag.empty() ? "" : " ", Italic(option.value));
  return StrCat(".TP\n", tag, "\n", Roff(option.text),
                option.required && !option.names.empty() ? " (required)" : "", "\n");
}

// Examples and tables keep their lines.
std::string Notes(const std::string& notes) {
  if (notes.empty()) return "";
  return StrCat(".PP\n.nf\n", Roff(notes), "\n.fi\n");
}

std::string CommandSection(std::string_view program, const CommandHelp& command) {
  std::string page = StrCat(".SS ", command.name, "\n", Synopsis(program, command), "\n.PP\n",
                            Roff(command.text), ".\n");
  for (const OptionHelp& positional : command.positionals) page += OptionEntry(positional);
  for (const OptionHelp& option : command.options) page += OptionEntry(option);
  return page + Notes(command.notes);
}

}  // namespace

std::string ManPage(const ProgramHelp& help) {
  const CommandHelp& program = help.program;
  std::string what = program.text;  // a sentence of its own; here the rest of one
  if (!what.empty()) what[0] = absl::ascii_tolower(static_cast<unsigned char>(what[0]));
  if (what.ends_with('.')) what.pop_back();
  std::string page =
      StrCat(".TH ", absl::AsciiStrToUpper(program.name), " 1 \"\" \"ptqwatch ",
             PTQWATCH_VERSION_STRING, "\" \"User Commands\"\n.SH NAME\n", Roff(program.name),
             " \\- ", Roff(what), "\n.SH SYNOPSIS\n", Bold(program.name), " ", Italic("COMMAND"),
             " [", Italic("OPTIONS"), "] ...\n.SH DESCRIPTION\n", Roff(program.text), "\n");
  page += ".SH OPTIONS\n";
  for (const OptionHelp& option : program.options) page += OptionEntry(option);
  page += ".SH COMMANDS\n";
  for (const CommandHelp& command : help.commands) page += CommandSection(program.name, command);
  // That is a heading here.
  const std::string examples(absl::StripPrefix(program.notes, "Examples:\n"));
  return StrCat(page, ".SH EXAMPLES\n", Notes(examples), kExitStatus, kSeeAlso);
}

}  // namespace ptqwatch::internal
