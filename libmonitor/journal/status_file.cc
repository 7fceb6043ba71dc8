#include "journal/status_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// Far larger than any status.
constexpr int64_t kMaxStatusBytes = int64_t{1} << 20;

std::string PathIn(const std::string& run_dir) { return StrCat(run_dir, "/", kStatusFileName); }

}  // namespace

absl::Status WriteStatusFile(const std::string& run_dir, const RunStatus& status) {
  const std::string line = StrCat(StatusJson(status), "\n");
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(PathIn(run_dir), 0600));
  PTQWATCH_RETURN_IF_ERROR(file.Append(line));
  return file.CommitUnsynced();
}

absl::StatusOr<RunStatus> ReadStatusFile(const std::string& run_dir) {
  const std::string path = PathIn(run_dir);
  PTQWATCH_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  PTQWATCH_ASSIGN_OR_RETURN(const std::string content,
                            file.ReadAt(0, static_cast<size_t>(std::min(size, kMaxStatusBytes))));
  absl::StatusOr<RunStatus> status = StatusFromJson(content);
  if (!status.ok()) {
    return absl::Status(status.status().code(), StrCat("'", path, "': ", status.status()));
  }
  return status;
}

}  // namespace ptqwatch::internal
