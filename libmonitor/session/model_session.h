#ifndef PTQWATCH_SESSION_MODEL_SESSION_H_
#define PTQWATCH_SESSION_MODEL_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "capture/capture_plan.h"
#include "capture/quantize_backend.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"
#include "session/monitor_device.h"
#include "snapshot/device_stream.h"
#include "snapshot/replica.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// The arguments of PlanCapture.
struct CaptureRequest {
  LayerSelection layers = {};
  int64_t max_gram_bytes = 0;
};

/// The batches on which curvature is measured: the subject's own, or the first
/// DefaultCurvatureSequences of its probe batches.
struct CurvatureBatchesRequest {
  int64_t micro_batch = 0;  ///< if positive, the batches are cut by MicroBatches
};

/// What the caller needs. Batches are copied to the replica's device. At least one kind is needed:
/// the replica is checked on the first probe and calibration batch, or else on the first curvature
/// batch.
struct ModelSessionOptions {
  bool probe = false;        ///< InvalidArgument if the subject has none
  bool calibration = false;  ///< InvalidArgument if the subject has none
  std::optional<CurvatureBatchesRequest> curvature = {};
  /// The plan is made from the first calibration batch, or else from the first curvature batch.
  std::optional<CaptureRequest> capture = {};
  /// Where the replica lives: as MonitorOptions::monitor_device.
  std::string device = std::string(kTrainerDevice);
  /// With `snapshots`: as MonitorOptions::device_reserve_bytes.
  int64_t device_reserve_bytes = 0;
  /// Refuse live weights that contain NaN or infinity.
  bool require_finite = false;
  /// How long every batch may take that is evaluated only to find mistakes; see
  /// ModelSession::unchecked. 0: no others than the checked ones.
  double max_check_seconds = 0;
  /// The caller takes snapshots: wait for the trainer's queued updates and provide stream().
  bool snapshots = false;
  /// Where the session reserves what it holds: the replica, the batches, a forward pass, and with
  /// `snapshots` as much as the model for a staged one. Null: no limit.
  std::shared_ptr<ByteBudget> bytes = {};
};

/// What an opened subject holds, in bytes.
struct SessionBytes {
  int64_t replica = 0;
  int64_t staging = 0;
  int64_t batches = 0;
  int64_t forward = 0;  ///< evaluating the largest batch
  int64_t small = 0;    ///< what is not counted one by one
  int64_t sum() const { return replica + staging + batches + forward + small; }
};

/// An opened subject: the live tensors, the batches on their device, the replica with the live
/// weights, and the capture plan. The monitor and the offline functions all open their subject
/// here. One thread at a time.
class ModelSession {
 public:
  /// Builds the replica, which a subject does once: a subject that was opened before is refused.
  /// The default random generators have the same state afterwards. Never throws.
  ///
  /// Cost: about four forward passes for each checked batch, one for the plan, and one of every
  /// batch within max_check_seconds; memory: twice the model, and the batches. `subject` must
  /// outlive the session.
  ///
  /// Errors: InvalidArgument for missing batches; FailedPrecondition for a subject that was opened
  /// before, a model on several devices, and whatever the subject or its losses closure does wrong;
  /// ResourceExhausted if memory runs out or `bytes` does not allow what is needed.
  static absl::StatusOr<std::unique_ptr<ModelSession>> Open(Subject& subject,
                                                            const ModelSessionOptions& options);

  /// Copies the live weights into the replica again. FailedPrecondition, leaving the replica as it
  /// is, if the live tensors differ from those at Open in names, shapes, dtypes, ties or device.
  /// REQUIRES: no lease of the replica is alive.
  absl::Status Reload();

  /// Waits for what the device still does, for who takes the time.
  void Drain() const {
    if (stream_ != nullptr) stream_->Drain();
  }
  /// What Gram matrices are summed and weights quantized with. The first call makes it, for what is
  /// needed then, on the thread and stream that measure.
  QuantizeBackend& Backend(const BackendNeeds& needs = {});
  /// On the same thread, at the end.
  void ReleaseBackend() { backend_.reset(); }

  Subject& subject() { return subject_; }
  const SessionBytes& bytes() const { return bytes_; }
  const MonitorDevice& device() const { return device_; }
  /// Bytes that may be taken on the device that is measured on; nothing where that is the CPU.
  std::optional<int64_t> DeviceBytesLeft() const;
  /// ResourceExhausted unless so many, or any, may be taken there.
  absl::Status CheckDeviceBytes(int64_t bytes, std::string_view what) const;
  /// The live tensors as they were at Open; empty after ReleaseLiveTensors.
  const TensorTable& live() const { return live_; }
  /// Drops the session's references to the live tensors.
  void ReleaseLiveTensors() { live_ = {}; }
  /// Null unless asked for.
  const std::shared_ptr<DeviceStream>& stream() const { return stream_; }

  Replica& replica() { return *replica_; }
  const Replica& replica() const { return *replica_; }
  /// Empty unless asked for.
  const CapturePlan& plan() const { return plan_; }
  const std::vector<Batch>& probe() const { return probe_; }
  /// Whether the losses closure returns one value for a whole probe batch.
  bool mean_losses() const { return mean_losses_; }
  /// Whether a probe sequence has one loss: then it is an example, as of a classifier.
  bool one_loss_each() const { return losses_a_sequence_ == 1; }
  /// Batches that were not evaluated for lack of time, as CheckEachBatch has it; empty if there are
  /// none.
  const std::string& unchecked() const { return unchecked_; }
  const std::vector<Batch>& calibration() const { return calibration_; }
  const std::vector<Batch>& curvature() const { return curvature_; }

 private:
  ModelSession(Subject& subject, std::shared_ptr<ByteBudget> bytes)
      : subject_(subject), held_(std::move(bytes)) {}
  absl::Status Build(const ModelSessionOptions& options);
  absl::Status ChooseDevice(const ModelSessionOptions& options);
  absl::Status CheckLeft(std::optional<int64_t> free, int64_t bytes, std::string_view what) const;
  absl::Status CopySubjectBatches(const ModelSessionOptions& options);
  absl::Status CutCurvatureBatches(const CurvatureBatchesRequest& request);
  absl::Status BuildReplica(const ModelSessionOptions& options);
  absl::Status CheckBatches(const ModelSessionOptions& options);
  absl::Status ReserveBatches(const ModelSessionOptions& options);

  Subject& subject_;
  Reservation held_;
  SessionBytes bytes_;
  TensorTable live_;
  MonitorDevice device_{.device = at::Device(at::kCPU)};
  std::shared_ptr<DeviceStream> stream_;
  std::vector<Batch> probe_;
  std::vector<Batch> calibration_;
  std::vector<Batch> curvature_;
  int64_t device_reserve_bytes_ = 0;
  bool mean_losses_ = false;
  int64_t losses_a_sequence_ = 0;  // 0: not known
  std::string unchecked_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<QuantizeBackend> backend_;
  CapturePlan plan_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MODEL_SESSION_H_
