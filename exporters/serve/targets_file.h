#ifndef PTQWATCH_SERVE_TARGETS_FILE_H_
#define PTQWATCH_SERVE_TARGETS_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// A file from which Prometheus learns the address of a server (file_sd_configs), as long as this
/// object exists. Not thread-safe.
class TargetsFile {
 public:
  /// Writes the file in one step, readable by every user. Replaces `host` of the address by this
  /// machine's name if it is a wildcard. Errors are the system's, with ServeOptions.targets_file
  /// and the path.
  static absl::StatusOr<std::unique_ptr<TargetsFile>> Write(const std::string& path,
                                                            const std::string& address, bool tls);
  /// Removes the file, unless another server has replaced it.
  ~TargetsFile();
  TargetsFile(const TargetsFile&) = delete;
  TargetsFile& operator=(const TargetsFile&) = delete;

 private:
  TargetsFile(std::string path, std::string content);
  const std::string path_;
  const std::string content_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SERVE_TARGETS_FILE_H_
