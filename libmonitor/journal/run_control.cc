#include "journal/run_control.h"

#include <sys/stat.h>

#include <chrono>
#include <optional>

#include "base/strings.h"
#include "base/unix_socket.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::seconds kTimeout{1};

// Where others may write to the directory, one of them could have put a socket there.
absl::Status CheckListener(const UnixConnection& connection, const std::string& run_dir) {
  struct stat folder {};
  if (stat(run_dir.c_str(), &folder) != 0) return absl::ErrnoToStatus(errno, "stat");
  const std::optional<uid_t> user = connection.PeerUser();
  if (user == folder.st_uid || user == uid_t{0}) return absl::OkStatus();
  return absl::PermissionDeniedError(StrCat("the process that listens at its ", kControlSocketName,
                                            " is of user ", user ? StrCat(*user) : "unknown",
                                            ", the directory of user ", folder.st_uid));
}

absl::StatusOr<std::string> Exchange(const std::string& run_dir, const std::string& request) {
  absl::StatusOr<UnixConnection> connection = UnixConnection::Open(run_dir, kControlSocketName);
  if (!connection.ok()) return connection.status();
  if (absl::Status known = CheckListener(*connection, run_dir); !known.ok()) return known;
  if (absl::Status sent = connection->SendLine(request, kTimeout); !sent.ok()) return sent;
  return connection->ReceiveLine(kMaxControlBytes, kTimeout);
}

}  // namespace

ControlResponse RunControl::Send(const ControlRequest& request) const {
  const absl::StatusOr<std::string> line = Exchange(run_dir_, RequestToJson(request));
  if (line.ok()) return ResponseFromJson(*line);
  const std::string where = StrCat("run directory '", run_dir_, "': ");
  if (absl::IsPermissionDenied(line.status())) {
    return absl::PermissionDeniedError(StrCat(where, line.status()));
  }
  if (absl::IsDeadlineExceeded(line.status())) {
    return absl::UnavailableError(StrCat(where, "the run did not answer in time"));
  }
  return absl::UnavailableError(
      StrCat(where, "no run takes commands here; it is over, or runs on another machine (",
             line.status(), ")"));
}

absl::Status RunControl::RequestSnapshot() {
  return Send({.kind = ControlRequest::Kind::kSnapshot}).status();
}
absl::Status RunControl::Pause() { return Send({.kind = ControlRequest::Kind::kPause}).status(); }
absl::Status RunControl::Resume() { return Send({.kind = ControlRequest::Kind::kResume}).status(); }
absl::Status RunControl::SetEvery(int64_t steps) {
  return Send({.kind = ControlRequest::Kind::kEvery, .every = steps}).status();
}
absl::StatusOr<int64_t> RunControl::RequestSlice(const SliceRequest& request) {
  return Send({.kind = ControlRequest::Kind::kSlice, .slice = request});
}
absl::StatusOr<int64_t> RunControl::RequestCooldown(const CooldownRequest& request) {
  return Send({.kind = ControlRequest::Kind::kCooldown, .decay_steps = request.decay_steps});
}
absl::Status RunControl::CancelCooldown() {
  return Send({.kind = ControlRequest::Kind::kCancelCooldown}).status();
}

}  // namespace ptqwatch::internal
