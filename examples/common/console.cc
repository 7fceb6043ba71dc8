#include "console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace ptqwatch::examples {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr size_t kDefaultColumns = 80;

size_t Columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

void Write(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

Console& Console::Get() {
  static Console* const console = new Console;
  return *console;
}

Console::Console() : terminal_(isatty(STDOUT_FILENO) != 0) {}

std::string_view Console::Erase() const { return progress_.empty() ? "" : kEraseLine; }

void Console::Line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  Write(stdout, std::string(Erase()).append(text).append("\n").append(progress_));
}

void Console::Warning(std::string_view text) {
  const std::lock_guard lock(mutex_);
  Write(stdout, Erase());
  Write(stderr, std::string(text).append("\n"));
  Write(stdout, progress_);
}

void Console::Progress(std::string_view text) {
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  const std::string_view erase = Erase();
  // One column stays free: a cursor that wraps could not be brought back by \r.
  progress_ = text.substr(0, Columns() - 1);
  Write(stdout, std::string(erase).append(progress_));
}

}  // namespace ptqwatch::examples
