#ifndef PTQWATCH_OFFLINE_AVERAGE_WEIGHTS_H_
#define PTQWATCH_OFFLINE_AVERAGE_WEIGHTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

struct CheckpointAverageOptions {
  /// 0: the mean. In (0, 1): m = decay m + (1 - decay) w in the order of the files, starting at the
  /// first one.
  double decay = 0;
  /// The merge with the weights of AveragingKind::kMerge, in the order of the files. Not with
  /// `decay`.
  std::optional<DecayShape> shape = {};
};

/// Averages checkpoints tensor by tensor, such as the last ones of a run (LAWA, arXiv 2209.14981)
/// or checkpoints of several runs (a model soup, arXiv 2203.05482). F16, BF16, F32 and F64 are
/// computed in float64 in the order of the files and rounded once (16-bit types by way of float32),
/// with the same bits as AveragingReport for the same weights. Integers and bools are taken from
/// the last file.
///
/// Returns the tensors by name, on the host, floating-point ones as parameters. A safetensors file
/// does not distinguish buffers from parameters, so floating-point buffers (running means of a
/// batch norm) are averaged too, while a monitor takes the newest.
///
/// Cost: reads every file once. Memory: the result, and three float64 copies of the largest tensor
/// plus one in its own type for each file.
///
/// Errors: InvalidArgument for no files, a decay outside [0, 1) or with a shape, files that differ
/// in a tensor's name, shape or dtype (naming the tensor and both files), and unsupported dtypes;
/// errors of SafetensorsFile. Never throws.
PTQWATCH_EXPORT absl::StatusOr<std::vector<NamedTensor>> AverageCheckpoints(
    absl::Span<const std::string> safetensors_paths, const CheckpointAverageOptions& options = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_AVERAGE_WEIGHTS_H_
