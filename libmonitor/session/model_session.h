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

/// Asks for the batches on which curvature is measured: the subject's own, or the first
/// DefaultCurvatureSequences of its probe batches.
struct CurvatureBatchesRequest {
  int64_t micro_batch = 0;  ///< if positive, the batches are cut by MicroBatches
};

/// The caller's needs. Batches are copied to the replica's device. At least one kind is needed: the
/// replica is checked on the first probe and calibration batch, or else on the first curvature
/// batch.
struct ModelSessionOptions {
  /// The live tensors, if another process has the live model; otherwise they are the subject's.
  std::optional<std::vector<NamedTensor>> live = {};
  /// If positive, `live` was assembled from the parts of several ranks, may list the replica's
  /// tensors in another order, and is held, with all that was assembled, in so many bytes.
  int64_t assembled_bytes = 0;
  /// The dtype to which the parameters in `live` are rounded; nullopt: they have the replica's.
  std::optional<at::ScalarType> rounding = {};
  /// The device of the live model, if `live` is set: copies of its tensors in host memory.
  at::Device trainer_device{at::kCPU};
  bool probe = false;        ///< InvalidArgument if the subject has none
  bool calibration = false;  ///< InvalidArgument if the subject has none
  /// As MonitorOptions::further_probe_sets. Used with `probe`.
  int64_t further_probe_sets = 0;
  std::optional<CurvatureBatchesRequest> curvature = {};
  /// Plans the capture from the calibration batches, or else from the curvature batches.
  std::optional<CaptureRequest> capture = {};
  /// The replica's device, as in MonitorOptions::monitor_device.
  std::string device = std::string(kTrainerDevice);
  /// As MonitorOptions::device_reserve_bytes. Used with `snapshots`.
  int64_t device_reserve_bytes = 0;
  /// Refuses live weights that contain NaN or infinity.
  bool require_finite = false;
  /// Time limit for evaluating batches only to find mistakes; see ModelSession::unchecked. 0
  /// evaluates only the checked batches.
  double max_check_seconds = 0;
  /// For callers that take snapshots: waits for queued updates and provides stream().
  bool snapshots = false;
  /// The session reserves its memory here: the replica, the batches, a forward pass and, with
  /// `snapshots`, a staged copy of the model. Null means no limit. With `snapshots`, what lies on a
  /// GPU is reserved in a budget of that GPU instead, see SessionBudgets.
  std::shared_ptr<ByteBudget> bytes = {};
  /// The most bytes that a GPU's budget may grant.
  int64_t max_device_bytes = INT64_MAX;
};

/// The budgets of an opened subject, one for each device: members for one device are the same
/// object. A GPU's budget leaves device_reserve_bytes free. All are null if the host has no limit.
struct SessionBudgets {
  std::shared_ptr<ByteBudget> host;
  std::shared_ptr<ByteBudget> measuring;  ///< the device of the replica and of all measurements
  std::shared_ptr<ByteBudget> copies;     ///< the model's device, which holds the snapshots
};

/// The memory of an opened subject, in bytes.
struct SessionBytes {
  int64_t replica = 0;
  int64_t staging = 0;
  int64_t batches = 0;
  int64_t forward = 0;  ///< evaluating the largest batch
  int64_t small = 0;    ///< everything not counted separately
  int64_t sum() const { return replica + staging + batches + forward + small; }
};

/// An opened subject: the live tensors, the batches on their device, the replica with the live
/// weights, and the capture plan. Used by the monitor and the offline functions. Not thread-safe.
class ModelSession {
 public:
  /// Builds the replica. A subject builds it only once, so a subject that was opened before is
  /// refused. Leaves the default random generators unchanged. Never throws.
  ///
  /// Cost: about four forward passes for each checked batch, one for the plan, and one of every
  /// batch within max_check_seconds; memory: twice the model, and the batches. `subject` must
  /// outlive the session.
  ///
  /// Errors: InvalidArgument for missing batches; FailedPrecondition for a subject that was opened
  /// before, a model on several devices, or a mistake of the subject or its losses closure;
  /// ResourceExhausted if memory runs out or `bytes` has no room.
  static absl::StatusOr<std::unique_ptr<ModelSession>> Open(Subject& subject,
                                                            const ModelSessionOptions& options);

  /// Copies the live weights into the replica again. If the live tensors differ from those at Open
  /// in names, shapes, dtypes, ties or device, returns FailedPrecondition and leaves the replica
  /// unchanged.
  /// REQUIRES: no lease of the replica is alive.
  absl::Status Reload();

  /// Waits for queued device work, so that the caller can measure time.
  void Drain() const {
    if (stream_ != nullptr) stream_->Drain();
  }
  /// The backend for Gram matrices and quantization. The first call makes it, for the needs given
  /// then. Call it on the measuring thread and stream.
  QuantizeBackend& Backend(const BackendNeeds& needs = {});
  /// Call on the same thread, at the end.
  void ReleaseBackend() { backend_.reset(); }

  Subject& subject() { return subject_; }
  const SessionBytes& bytes() const { return bytes_; }
  const MonitorDevice& device() const { return device_; }
  const SessionBudgets& budgets() const { return budgets_; }
  /// Sets the limit of a measuring GPU's budget to what is free now. Does nothing on the
  /// CPU.
  void FitDeviceBudget() const;
  /// Returns ResourceExhausted unless the measuring device has room for more than `bytes`.
  absl::Status CheckDeviceBytes(int64_t bytes, std::string_view what) const;
  /// The live tensors as they were at Open; empty after ReleaseLiveTensors.
  const TensorTable& live() const { return live_; }
  /// Drops the session's references to the live tensors.
  void ReleaseLiveTensors() { live_ = {}; }
  /// Null unless requested.
  const std::shared_ptr<DeviceStream>& stream() const { return stream_; }

  Replica& replica() { return *replica_; }
  const Replica& replica() const { return *replica_; }
  /// Empty unless requested.
  const CapturePlan& plan() const { return plan_; }
  /// Without those of the further sets.
  const std::vector<Batch>& probe() const { return probe_; }
  /// As many sets of batches as were asked for, of the same length.
  const std::vector<std::vector<Batch>>& further_probe() const { return further_probe_; }
  /// Whether the losses closure returns one value for a whole probe batch.
  bool mean_losses() const { return mean_losses_; }
  /// Whether a probe sequence has one loss and so is an example, as for a classifier.
  bool one_loss_each() const { return losses_a_sequence_ == 1; }
  /// Batches that were not evaluated for lack of time, as CheckEachBatch's text; may be empty.
  const std::string& unchecked() const { return unchecked_; }
  const std::vector<Batch>& calibration() const { return calibration_; }
  const std::vector<Batch>& curvature() const { return curvature_; }

 private:
  explicit ModelSession(Subject& subject) : subject_(subject) {}
  absl::Status Build(const ModelSessionOptions& options);
  absl::Status ChooseDevice(const ModelSessionOptions& options);
  void MakeBudgets(const ModelSessionOptions& options);
  // Bytes of a GPU that may be taken if `free` are free.
  int64_t Left(int64_t free) const;
  absl::Status CheckLeft(std::optional<int64_t> free, int64_t bytes, std::string_view what) const;
  absl::Status CopySubjectBatches(const ModelSessionOptions& options);
  absl::Status CutProbeSets(int64_t further);
  absl::Status CutCurvatureBatches(const CurvatureBatchesRequest& request);
  absl::Status BuildReplica(const ModelSessionOptions& options);
  absl::Status CheckBatches(const ModelSessionOptions& options);
  absl::Status ReserveBatches(const ModelSessionOptions& options);

  Subject& subject_;
  SessionBudgets budgets_;
  std::optional<Reservation> held_;    // of budgets_.measuring
  std::optional<Reservation> staged_;  // of budgets_.copies
  std::optional<Reservation> small_;   // of budgets_.host
  SessionBytes bytes_;
  TensorTable live_;
  MonitorDevice device_{.device = at::Device(at::kCPU)};
  std::shared_ptr<DeviceStream> stream_;
  std::vector<Batch> probe_;
  std::vector<std::vector<Batch>> further_probe_;
  std::vector<Batch> calibration_;
  std::vector<Batch> curvature_;
  int64_t device_reserve_bytes_ = 0;
  int64_t max_device_bytes_ = INT64_MAX;
  bool mean_losses_ = false;
  int64_t losses_a_sequence_ = 0;  // 0 if unknown
  std::string unchecked_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<QuantizeBackend> backend_;
  CapturePlan plan_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MODEL_SESSION_H_
