#ifndef PTQWATCH_PROBES_PROBE_STATE_FILE_H_
#define PTQWATCH_PROBES_PROBE_STATE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/vector_space.h"
#include "probes/probe_state.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

inline constexpr char kStateFileName[] = "state.safetensors";

/// The file in a run directory that keeps the ProbeState for the next attempt of the run: the
/// vectors by name, with run, fingerprint and sequence as metadata. Not thread-safe.
class ProbeStateFile {
 public:
  /// Replaces the file atomically. Writes the bytes of all vectors and waits for the disk. Runs no
  /// operator of LibTorch, so any thread may call it: InvalidArgument for a vector that is not on
  /// the CPU. Other errors name the path.
  static absl::Status Write(const std::string& run_dir, const std::string& run_id,
                            const std::string& fingerprint, const ProbeState& state);

  /// Reads the metadata. A later Write does not change what Read returns. NotFound if there is no
  /// file; DataLoss if it is damaged; FailedPrecondition if it is not a probe state or has a later
  /// version.
  static absl::StatusOr<ProbeStateFile> Open(const std::string& run_dir);

  const std::string& path() const { return file_.path(); }
  const std::string& run_id() const { return run_id_; }
  const std::string& fingerprint() const { return fingerprint_; }
  int64_t sequence() const { return sequence_; }

  /// FailedPrecondition if a vector does not fit `space`.
  absl::StatusOr<ProbeState> Read(const VectorSpace& space) const;

 private:
  explicit ProbeStateFile(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  std::string run_id_;
  std::string fingerprint_;
  int64_t sequence_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_STATE_FILE_H_
