#include "command_support.h"

#include "base/strings.h"
#include "commands.h"

namespace ptqwatch::internal {

std::chrono::nanoseconds FromSeconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

int Fail(const absl::Status& status, Terminal* terminal) {
  terminal->Notice(Message(status));
  return kExitFailed;
}

int Finish(Terminal* terminal) {
  return terminal->error().ok() ? 0 : Fail(terminal->error(), terminal);
}

}  // namespace ptqwatch::internal
