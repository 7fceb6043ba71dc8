#ifndef PTQWATCH_SNAPSHOT_OPTIMIZER_STAGING_H_
#define PTQWATCH_SNAPSHOT_OPTIMIZER_STAGING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/subject.h"
#include "snapshot/device_stream.h"
#include "snapshot/snapshot.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// Copies the measured part of the optimizer's state together with the weights. A failure costs the
/// snapshot only its OptimizerState. Used on the trainer's thread.
class OptimizerStaging {
 public:
  /// The optimizer as it is now (Subject::Optimizer), which is nullopt if there is none.
  using Read = std::function<std::optional<OptimizerView>()>;
  /// Makes the buffer of an entry's second moment, of the sizes of the entry.
  using MakeBuffer = std::function<at::Tensor(size_t entry, at::ScalarType type, int64_t bytes)>;

  /// A staging area that copies nothing.
  OptimizerStaging() = default;
  /// Calls `read`, as Fill does. For Adam and AdamW, allocates buffers for the second moments
  /// of these `entries` of `live`. Returns InvalidArgument for a parameter that is not in `live`, a
  /// moment of another shape or device, or a momentum, beta or epsilon out of range;
  /// FailedPrecondition, with the message, if `read` throws. If `bytes` has no room for the
  /// buffers, or `copies` none for a copy of them on the measuring device, the moments are left
  /// out; description() and OptimizerState::problem then say so. Null means no limit. Without
  /// `make`, buffers are on the parameters' devices.
  static absl::StatusOr<OptimizerStaging> Create(Read read, const TensorTable& live,
                                                 const std::vector<int>& entries,
                                                 std::shared_ptr<ByteBudget> bytes = nullptr,
                                                 std::shared_ptr<ByteBudget> copies = nullptr,
                                                 const MakeBuffer& make = nullptr);

  /// Copies the current optimizer state into `state`. Allocates no tensor.
  void Fill(DeviceStream& stream, OptimizerState& state) noexcept;

  /// Size of the buffers.
  int64_t bytes() const { return bytes_; }
  /// "adamw, second moments of 24576 parameters"; empty without an optimizer.
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
  OptimizerStaging LeaveOut(const absl::Status& why) const;
  absl::Status CopyState(OptimizerView view, DeviceStream& stream, OptimizerState& state) const;

  Read read_;
  std::vector<Parameter> parameters_;              // one for each entry
  std::map<std::string, int, std::less<>> entry_;  // by listed name
  std::unique_ptr<Reservation> held_;
  std::unique_ptr<Reservation> copied_;
  int64_t bytes_ = 0;
  std::string description_;
  std::string left_out_;  // why nothing is copied
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_OPTIMIZER_STAGING_H_
