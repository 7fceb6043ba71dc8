#include "journal/run_control.h"

#include <sys/stat.h>

#include <chrono>
#include <optional>

#include "base/host_name.h"
#include "base/strings.h"
#include "base/unix_socket.h"
#include "base/utf8.h"
#include "journal/control_message.h"
#include "journal/status_file.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::seconds kTimeout{1};

// If other users may write to the directory, one of them may have put a socket there.
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

absl::StatusOr<int64_t> RunControl::Do(const Command& command) {
  const absl::StatusOr<std::string> line = Exchange(run_dir_, CommandToJson(command));
  if (line.ok()) return AnswerFromJson(*line);
  const std::string where = StrCat("run directory '", run_dir_, "': ");
  if (absl::IsPermissionDenied(line.status())) {
    return absl::PermissionDeniedError(StrCat(where, line.status()));
  }
  if (absl::IsDeadlineExceeded(line.status())) {
    return absl::UnavailableError(StrCat(where, "the run did not answer in time"));
  }
  const absl::StatusOr<RunStatus> status = ReadStatusFile(run_dir_);
  if (status.ok() && IsOtherHost(status->host)) {
    return absl::UnavailableError(StrCat(where, "its run takes commands only on host ",
                                         Quoted(status->host), ", and this is ",
                                         Quoted(HostName())));
  }
  return absl::UnavailableError(StrCat(
      where, "no run answers here; it is over or runs on another machine (", line.status(), ")"));
}

}  // namespace ptqwatch::internal
