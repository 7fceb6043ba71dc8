#ifndef PTQWATCH_JOBS_COOLDOWN_JOB_H_
#define PTQWATCH_JOBS_COOLDOWN_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "jobs/cooldown_run.h"
#include "jobs/job.h"
#include "probes/quantization_measurement.h"
#include "ptqwatch/options.h"
#include "publish/job_tracker.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Makes the requested and scheduled shadow cooldowns. Begin only keeps the weights of the
/// snapshot, after its report is published; Advance does the work. The result is in all reports
/// from the next one on.
class CooldownJob final : public Job {
 public:
  /// Opens the tracker, or closes it with the reason why this monitor makes no cooldowns. The
  /// session must still have its live tensors. `curvature` may be null. All must outlive the job.
  CooldownJob(ModelSession& session, const CooldownOptions& options,
              const QuantizationOptions& quantization, Probe* curvature, CooldownTracker& tracker);

  std::vector<std::string_view> uses() const override { return {"quantization"}; }
  std::string Describe() const override;
  void Begin(const JobInput& input, const ExecutionContext& context) override;
  void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
               const ExecutionContext& context) override;
  JobStatus Status() const override;
  void WaitForCore(const JobCallbacks& callbacks) override;
  void EndTraining() override { Abandon("training has ended"); }
  void Abandon(const std::string& reason) override;
  void Close(const std::string& reason) override;
  ResultValue Result() const override;
  void Resume(const Report& newest) override { newest_ = newest.predicted_end; }

 private:
  bool Scheduled(const SnapshotPlace& place);
  void BeginFrom(SnapshotPlace place, const JobCallbacks& callbacks,
                 const ExecutionContext& context);
  bool Cancelled() const;
  void UpdateProgress();
  void End(const absl::Status& status, const JobCallbacks& callbacks);

  ModelSession& session_;
  const CooldownOptions options_;
  const QuantizationMeasurement measurement_;
  Probe* const curvature_;
  CooldownTracker& tracker_;
  const std::vector<int> trained_;
  std::unique_ptr<CooldownRun> run_;
  int64_t number_ = 0;    // of run_
  bool waiting_ = false;  // for a core; this has been announced
  int64_t seen_ = 0;      // regular snapshots of the plateau
  int64_t curvature_sequences_ = 0;
  std::optional<PredictedEnd> newest_;  // result of the newest cooldown that has ended
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_COOLDOWN_JOB_H_
