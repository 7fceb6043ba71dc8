#ifndef PTQWATCH_JOBS_SLICE_JOB_H_
#define PTQWATCH_JOBS_SLICE_JOB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "jobs/job.h"
#include "probes/quantization_measurement.h"
#include "publish/job_tracker.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

struct SliceJobOptions {
  std::string run_dir = {};               ///< directory of the file; empty: no slices are made
  QuantizationOptions quantization = {};  ///< of the run
  bool curvature = false;                 ///< whether the session has curvature batches
};

/// Makes requested slices: keeps the weights of one snapshot, and at the next one measures the loss
/// over the plane through both and the quantized weights. The plane is in the space of all
/// floating-point parameters, the data are the curvature batches, and buffers are those of the
/// second snapshot. Writes <run_dir>/slice-<step>.json.
class SliceJob final : public Job {
 public:
  /// Opens the tracker, or closes it with the reason why this monitor makes no slices. `session`
  /// and `tracker` must outlive the job.
  SliceJob(ModelSession& session, const SliceJobOptions& options, SliceTracker& tracker);

  std::vector<std::string_view> uses() const override { return {"quantization"}; }
  void Begin(const JobInput& input, const ExecutionContext& context) override;
  void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
               const ExecutionContext& context) override;
  JobStatus Status() const override;
  void Abandon(const std::string& reason) override;
  void Close(const std::string& reason) override;

 private:
  // The second snapshot, while the slice is measured on it.
  struct Second {
    SnapshotPlace place;
    int group_size = 0;
    std::vector<Replica::Override> quantized;
    std::shared_ptr<Reservation> held;  // memory of the weights, if quantized here
  };
  absl::Status KeepWeights(int64_t step, const ExecutionContext& context);
  absl::StatusOr<Second> TakeSecond(const SnapshotPlace& place, QuantizationResult& quantization,
                                    const ExecutionContext& context);
  // The weights of a quantizer that another rank measures.
  QuantizationResult Quantize(const SnapshotPlace& place, size_t quantizer,
                              const ExecutionContext& context) const;
  absl::StatusOr<std::string> Measure(const JobCallbacks& callbacks,
                                      const ExecutionContext& context);
  void Fail(const absl::Status& status, int64_t step, const JobCallbacks& callbacks);
  void Forget();

  ModelSession& session_;
  SliceTracker& tracker_;
  const std::string run_dir_;
  const QuantizationOptions quantization_;
  std::vector<Replica::Override> previous_;
  std::optional<Reservation> held_;  // memory of previous_
  int64_t previous_step_ = 0;
  std::optional<Second> second_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_SLICE_JOB_H_
