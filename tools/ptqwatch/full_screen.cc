#include "full_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <string_view>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// Alternate screen, no cursor, and no wrapping, so that a wide character does not move the lines
// below it.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

// Accessed by the signal handlers.
volatile sig_atomic_t open_screen = 0;
volatile sig_atomic_t was_stopped = 0;
termios terminal_before;
termios during;

void WriteBytes(std::string_view bytes) {
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
}

void Enter() {
  WriteBytes(kEnter);
  tcsetattr(STDIN_FILENO, TCSANOW, &during);
}

void Leave() {
  WriteBytes(kLeave);
  // Leaves the terminal alone if another job has it: changing it would stop this process.
  if (tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

// Ctrl-Z: returns the terminal to the shell, and restores the view when the process continues.
void SuspendView(int) {
  const int error = errno;
  Leave();
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  struct sigaction own {};
  sigaction(SIGTSTP, &by_default, &own);
  sigset_t mask, old;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTSTP);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &mask, &old);  // stops here
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  sigaction(SIGTSTP, &own, nullptr);
  Enter();
  was_stopped = 1;
  errno = error;
}

}  // namespace

FullScreen::FullScreen(Terminal* terminal) : terminal_(terminal) {
  tcgetattr(STDIN_FILENO, &terminal_before);
  during = terminal_before;
  during.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  during.c_cc[VMIN] = 1;
  during.c_cc[VTIME] = 0;
  open_screen = 1;
  struct sigaction action {};
  action.sa_handler = SuspendView;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTSTP, &action, nullptr);
  Enter();
}

FullScreen::~FullScreen() {
  signal(SIGTSTP, SIG_DFL);
  open_screen = 0;
  Leave();
}

void FullScreen::Draw(const std::vector<std::string>& lines) {
  std::string frame = "\x1b[H";
  // Erases before writing, because after a full line the cursor is on its last character.
  for (size_t i = 0; i < lines.size(); ++i) {
    frame += StrCat(i == 0 ? "" : "\r\n", "\x1b[K", lines[i], "\x1b[0m");
  }
  if (lines.size() < size().rows) frame += "\r\n\x1b[J";
  const bool stopped = was_stopped != 0;
  was_stopped = 0;
  if (!stopped && frame == drawn_ && size() == drawn_size_) return;
  if (stopped || size() != drawn_size_) terminal_->Block("\x1b[2J");
  terminal_->Block(frame);
  drawn_ = std::move(frame);
  drawn_size_ = size();
}

char FullScreen::Key() {
  pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  char key = 0;
  if (poll(&ready, 1, 0) <= 0 || (ready.revents & POLLIN) == 0) return 0;
  return read(STDIN_FILENO, &key, 1) == 1 ? key : '\0';
}

void AbandonFullScreen() {
  if (open_screen != 0) Leave();
}

}  // namespace ptqwatch::internal
