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

/// A ProbeState in a run directory, for the next attempt of the run to start from: the vectors by
/// their names, and as metadata whose it is. One thread at a time.
class ProbeStateFile {
 public:
  /// Puts `state` in the place of the one before, whole or not at all. Writes as many bytes as its
  /// vectors have, and waits for the disk. Errors name the path.
  static absl::Status Write(const std::string& run_dir, const std::string& run_id,
                            const std::string& fingerprint, const ProbeState& state);

  /// Reads all but the vectors, which stay those of the file that was opened, whatever is written
  /// since. NotFound where there is none; DataLoss where it is damaged; FailedPrecondition where it
  /// is none of ours or of a later version.
  static absl::StatusOr<ProbeStateFile> Open(const std::string& run_dir);

  const std::string& path() const { return file_.path(); }
  const std::string& run_id() const { return run_id_; }
  const std::string& fingerprint() const { return fingerprint_; }
  int64_t sequence() const { return sequence_; }

  /// FailedPrecondition where a vector is none of `space`.
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
