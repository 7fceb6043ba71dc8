#include "program.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "CLI/CLI.hpp"

namespace ptqwatch::examples {
namespace {

int Fail(int exit_code, const char* message) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
  return exit_code;
}

}  // namespace

void ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::printf("%s", app.help().c_str());
    std::exit(0);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
}

int RunProgram(absl::FunctionRef<int()> body) {
  // Line buffering, so that a reader at the other end of a pipe sees each line at once.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return body();
  } catch (const UsageError& error) {
    return Fail(2, error.what());
  } catch (const std::exception& error) {
    return Fail(1, error.what());
  }
}

}  // namespace ptqwatch::examples
