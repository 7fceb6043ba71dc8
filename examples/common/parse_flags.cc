#include "parse_flags.h"

#include <cerrno>
#include <iostream>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "console.h"

namespace ptqwatch::examples {
namespace {

constexpr int kUsageExitCode = 2;

}  // namespace

std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& error) {
    return FailWithUsage(error.what());
  }
  return std::nullopt;
}

int FailWithUsage(const std::string& message) {
  Console::Get().Warning(absl::StrCat(program_invocation_short_name, ": ", message));
  return kUsageExitCode;
}

}  // namespace ptqwatch::examples
