// The ptqwatch command: follows, serves and controls training runs.

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "base/strings.h"
#include "client/target.h"
#include "commands.h"
#include "flags.h"
#include "full_screen.h"
#include "ptqwatch/execution_context.h"
#include "terminal.h"

namespace {

using ptqwatch::internal::AbandonFullScreen;
using ptqwatch::internal::kCleanTerminal;

volatile sig_atomic_t clean_terminal = 0;

// Nothing needs to be saved, so the process ends at once.
void EndAtOnce(int number) {
  AbandonFullScreen();
  if (clean_terminal != 0) {
    [[maybe_unused]] const ssize_t written =
        write(STDOUT_FILENO, kCleanTerminal.data(), kCleanTerminal.size());
  }
  _exit(128 + number);
}

// A crash must not leave the terminal without echo.
void RestoreAndCrash(int number) {
  AbandonFullScreen();
  raise(number);
}

void HandleSignals() {
  struct sigaction crash {};
  crash.sa_handler = RestoreAndCrash;
  crash.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    sigaction(number, &crash, nullptr);
  }
  struct sigaction action {};
  action.sa_handler = EndAtOnce;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction old {};
    // Shells start the background jobs of scripts with SIGINT ignored.
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);  // writes report a reader that has gone
}

// Otherwise the first socket would reuse a closed descriptor and receive output.
void FillClosedDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ptqwatch::internal;  // NOLINT(google-build-using-namespace)
  FillClosedDescriptors();
  HandleSignals();
  SilenceGrpc();
  setlocale(LC_CTYPE, "");
  Terminal terminal = Terminal::Standard();
  clean_terminal = terminal.terminal();
  auto command = ParseCommandLine(argc, argv);
  if (!command.ok()) {
    terminal.Notice(Message(command.status()));
    return kExitUsage;
  }
  return RunCommand(*std::move(command), ptqwatch::Clock::Real(), &terminal);
}
