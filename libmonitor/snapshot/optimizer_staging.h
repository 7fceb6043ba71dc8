#ifndef PTQWATCH_SNAPSHOT_OPTIMIZER_STAGING_H_
#define PTQWATCH_SNAPSHOT_OPTIMIZER_STAGING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"
#include "snapshot/device_stream.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// A snapshot's optimizer.
struct OptimizerState {
  /// Of the parameters that were asked for, under their canonical names; the second moments are
  /// copies in the monitor's own memory.
  std::optional<OptimizerView> view;
  /// Why there is none, where the trainer passes one.
  std::string problem;
};

/// Copies what is needed of the optimizer's state when the weights are copied. What does not fit
/// costs the snapshot its OptimizerState, never itself. Trainer's thread.
class OptimizerStaging {
 public:
  /// Copies nothing.
  OptimizerStaging() = default;
  /// Asks `subject` for its optimizer and allocates buffers for the second moments of `entries` of
  /// `live`, where it is one of Adam's kind. InvalidArgument for a parameter that `live` does not
  /// have, a moment of another shape or device, or a momentum, beta or epsilon out of range;
  /// FailedPrecondition with the message of what the subject throws.
  static absl::StatusOr<OptimizerStaging> Create(const Subject& subject, const TensorTable& live,
                                                 const std::vector<int>& entries);

  /// Puts the optimizer as it is now into `state`. Allocates no tensor.
  void Fill(const Subject& subject, DeviceStream& stream, OptimizerState& state) noexcept;

  /// Of the buffers.
  int64_t bytes() const { return bytes_; }
  /// "adamw, second moments of 24576 parameters"; empty where the trainer passes no optimizer.
  const std::string& description() const { return description_; }

 private:
  struct Parameter {
    std::string name;  // canonical
    std::vector<int64_t> sizes;
    at::Device device;
    bool wanted = false;
    at::Tensor buffer;
  };
  absl::Status Check(const OptimizerView& view) const;
  absl::Status CopyState(OptimizerView view, DeviceStream& stream, OptimizerState& state) const;

  std::vector<Parameter> parameters_;              // one an entry
  std::map<std::string, int, std::less<>> entry_;  // of every listed name
  int64_t bytes_ = 0;
  std::string description_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_OPTIMIZER_STAGING_H_
