#include "command_support.h"

#include "base/strings.h"
#include "commands.h"
#include "printable.h"
#include "run_server.h"

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

absl::StatusOr<int64_t> Send(const Target& target, const Command& command) {
  if (!target.run_dir.empty()) {
    absl::StatusOr<int64_t> sent = ControlOfRun(target.run_dir)->Do(command);
    if (sent.ok()) return sent;
    return absl::Status(sent.status().code(), Printable(Message(sent.status())));
  }
  Connection connection(target);
  v1::DoResponse response;
  const grpc::Status answer = connection.Do(command, &response);
  if (!answer.ok()) return ExplainFailure(answer, target);
  return response.number();
}

}  // namespace ptqwatch::internal
