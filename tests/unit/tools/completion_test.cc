// Shell completion and the manual page say what the help says.
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "man_page.h"
#include "program.h"
#include "program_help.h"

namespace ptqwatch::internal {
namespace completion_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Printed(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "ptqwatch");
  const auto command = ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? std::get<PrintText>(*command).text : "";
}

std::set<std::string> Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

std::set<std::string> Subcommands() {
  const std::string help = Printed({"--help"});
  const size_t begin = help.find("Subcommands:");
  return Matches(help.substr(begin, help.find("Examples:") - begin), R"((?:^|\n)  ([a-z]+) )");
}

// Of the list of options, not of the examples.
std::set<std::string> Options(const std::string& subcommand) {
  return Matches(Printed({subcommand.c_str(), "--help"}), R"(\n  (?:-\w,)?(--[a-z-]+))");
}

// What `ptqwatch completion bash` offers for the last of the words.
std::set<std::string> Offered(const std::string& words) {
  const std::string script =
      "source <(" PTQWATCH_PROGRAM " completion bash); COMP_WORDS=(ptqwatch " + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _ptqwatch; printf \"%s\\n\" \"${COMPREPLY[@]}\"";
  FILE* pipe = popen(("bash -c '" + script + "'").c_str(), "r");
  std::string output;
  char buffer[256];
  while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
  EXPECT_EQ(pclose(pipe), 0);
  return Matches(output, R"(([^\n]+)\n)");
}

TEST(Completion, KnowsEveryOptionOfEverySubcommand) {
  const std::string bash = Printed({"completion", "bash"});
  const std::string zsh = Printed({"completion", "zsh"});
  const std::string fish = Printed({"completion", "fish"});
  const std::string man = Printed({"man"});
  ASSERT_GE(Subcommands().size(), 15u);
  for (const std::string& subcommand : Subcommands()) {
    SCOPED_TRACE(subcommand);
    EXPECT_THAT(zsh, HasSubstr("    '" + subcommand + ":"));
    EXPECT_THAT(fish, HasSubstr(" -a " + subcommand + " "));
    EXPECT_THAT(man, HasSubstr("\n.SS " + subcommand + "\n"));
    ASSERT_FALSE(Options(subcommand).empty());
    const std::set<std::string> offered = Offered(subcommand + " --");
    for (const std::string& option : Options(subcommand)) {
      EXPECT_TRUE(offered.contains(option)) << option;
      EXPECT_THAT(zsh, HasSubstr("'" + option + "["));
      EXPECT_THAT(fish, HasSubstr(" -l " + option.substr(2) + " "));
    }
  }
}

TEST(Completion, OffersSubcommandsAndValues) {
  EXPECT_EQ(Offered("wat"), std::set<std::string>({"watch"}));
  EXPECT_EQ(Offered("completion \"\""), std::set<std::string>({"bash", "fish", "zsh"}));
  EXPECT_EQ(Offered("watch --since \"\""), std::set<std::string>({"now"}));
  EXPECT_EQ(Offered("watch /proc/sel"), std::set<std::string>({"/proc/self"}));
  EXPECT_EQ(Offered("serve --tls-key /proc/sel"), std::set<std::string>({"/proc/self"}));
}

TEST(ManPage, LeavesNothingToRoff) {
  ProgramHelp help;
  help.program.name = "program";
  help.program.text = "Shows 'it'.";
  help.commands.push_back({.name = "go",
                           .text = ".goes",
                           .notes = "Examples:\n  a\\b\n.c\n'd",
                           .options = {{.names = {"-x", "--x-y"},
                                        .value = "FILE",
                                        .text = "Where",
                                        .required = true,
                                        .many = false}},
                           .positionals = {}});
  const std::string page = ManPage(help);
  EXPECT_THAT(page, HasSubstr("program \\- shows \\(aqit\\(aq\n"));
  EXPECT_THAT(page, HasSubstr("\n\\&.goes.\n"));
  EXPECT_THAT(page, HasSubstr("  a\\eb\n\\&.c\n\\&\\(aqd\n"));
  EXPECT_THAT(page,
              HasSubstr("\n\\fB\\-x\\fR, \\fB\\-\\-x\\-y\\fR \\fIFILE\\fR\nWhere (required)\n"));
}

TEST(ManPage, HasNoLineThatRoffTakesForARequest) {
  const std::set<std::string> requests = Matches(Printed({"man"}), R"((?:^|\n)([.'][^\s]*))");
  EXPECT_EQ(requests, std::set<std::string>({".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"}));
}

}  // namespace completion_test
}  // namespace ptqwatch::internal
