#include "command_support.h"

#include "base/strings.h"
#include "commands.h"
#include "printable.h"
#include "status_text.h"

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

int Finish(const absl::Status& status, Terminal* terminal) {
  return status.ok() ? Finish(terminal) : Fail(status, terminal);
}

void NoteProblems(std::string_view journal, const ReplayedJournal& read, Terminal* terminal) {
  const std::string name = Printable(journal);
  if (read.unreadable_lines > 0) {
    terminal->Notice(StrCat("'", name, "': skipped ", read.unreadable_lines, " unreadable line",
                            read.unreadable_lines == 1 ? "" : "s"));
  }
  if (read.replicas.diverged) {
    terminal->Notice(StrCat("'", name, "': replicas ", ReplicasText(read.replicas)));
  }
}

}  // namespace ptqwatch::internal
