#ifndef PTQWATCH_CHECKPOINT_SAFETENSORS_WRITER_H_
#define PTQWATCH_CHECKPOINT_SAFETENSORS_WRITER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/atomic_file.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::internal {

/// WriteSafetensors without its last step, AtomicFile::Commit, which renames the file. `mode` is
/// cut by the umask.
absl::StatusOr<AtomicFile> StageSafetensors(const std::string& path,
                                            const std::vector<TensorSource>& tensors,
                                            const TensorMetadata& metadata, mode_t mode = 0666);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHECKPOINT_SAFETENSORS_WRITER_H_
