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

absl::Status Send(const Target& target, const std::function<absl::Status(Control&)>& to_run,
                  const std::function<grpc::Status(Connection&)>& to_server) {
  if (!target.run_dir.empty()) {
    const absl::Status sent = to_run(*ControlOfRun(target.run_dir));
    return absl::Status(sent.code(), Printable(Message(sent)));
  }
  Connection connection(target);
  const grpc::Status answer = to_server(connection);
  return answer.ok() ? absl::OkStatus() : ExplainFailure(answer, target);
}

}  // namespace ptqwatch::internal
