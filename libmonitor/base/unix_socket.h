#ifndef PTQWATCH_BASE_UNIX_SOCKET_H_
#define PTQWATCH_BASE_UNIX_SOCKET_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// One end of a connection between processes of this machine; closed with this object.
class UnixConnection {
 public:
  explicit UnixConnection(int descriptor) : descriptor_(descriptor) {}
  UnixConnection(UnixConnection&& other) noexcept;
  UnixConnection& operator=(UnixConnection&&) = delete;
  ~UnixConnection();

  /// Connects to the socket `name` in `folder`, whose path may have any length. The status of errno
  /// if no process listens there.
  static absl::StatusOr<UnixConnection> Open(const std::string& folder, const std::string& name);

  /// Whether the other end is still open.
  bool IsOpen() const;
  /// The user of the peer process.
  std::optional<uid_t> PeerUser() const;
  /// Whether the peer process runs as this process's user or as root.
  bool IsOfThisUser() const;
  /// Sends `line` and a newline. DeadlineExceeded if the other end does not read in time, or once
  /// the descriptor `cancel` is readable.
  absl::Status SendLine(std::string_view line, std::chrono::milliseconds timeout,
                        int cancel = -1) const;
  /// Receives a line, without its newline. DeadlineExceeded as above, Unavailable if the other end
  /// closes first, ResourceExhausted for more than `max_bytes`.
  absl::StatusOr<std::string> ReceiveLine(size_t max_bytes, std::chrono::milliseconds timeout,
                                          int cancel = -1) const;

 private:
  int descriptor_;
};

/// A Unix socket in a folder, accessible only to its owner. One thread at a time.
class UnixListener {
 public:
  /// Replaces a socket left by an earlier process. Returns the status of errno, with the path, for
  /// example if the file system does not support sockets.
  static absl::StatusOr<UnixListener> Open(const std::string& folder, const std::string& name);
  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&&) = delete;
  /// Closes the socket and removes its file.
  ~UnixListener();

  /// Readable while a connection waits to be accepted.
  int descriptor() const { return descriptor_; }
  /// Unavailable if no connection waits or no descriptor is left.
  absl::StatusOr<UnixConnection> Accept() const;

 private:
  UnixListener(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_;
  std::string path_;  // empty before the file exists
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_UNIX_SOCKET_H_
