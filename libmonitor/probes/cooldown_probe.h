#ifndef PTQWATCH_PROBES_COOLDOWN_PROBE_H_
#define PTQWATCH_PROBES_COOLDOWN_PROBE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "probes/cooldown_run.h"
#include "probes/cooldown_tracker.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Makes the shadow cooldowns that are requested or scheduled. At the snapshot that one is made
/// from it only keeps the weights, once the report is out; the work is done by Advance, whenever
/// there is time. Its result is in the reports from the next one on.
class CooldownProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "cooldown";

  /// Opens the tracker, or closes it with the reason why this monitor makes none. The session must
  /// still have its live tensors. `curvature` may be null. All must outlive the probe.
  CooldownProbe(ModelSession& session, const MonitorOptions& options, Probe* curvature,
                CooldownTracker* tracker);

  std::string_view name() const override { return kName; }
  std::vector<std::string_view> needs() const override { return {"quantization"}; }
  bool after_report() const override { return true; }
  ProbeDescription Describe(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;
  void Disable(std::string reason) override;

  /// Whether Advance has something to do.
  bool under_way() const { return run_ != nullptr; }
  /// The step of the snapshot that the newest one was begun from.
  int64_t step() const { return step_; }
  /// Works at the cooldown under way until `stop`, or until it has ended, which is announced.
  void Advance(absl::FunctionRef<bool()> stop, const ProbeCallbacks& callbacks,
               const ExecutionContext& context);
  /// Its status says that it waits for a core, until it goes on.
  void WaitForCore() { tracker_->WaitsForCore(); }
  /// Gives it up, with a reason.
  void Abandon(const std::string& reason);

  /// The one that the run had before it was resumed.
  void Resume(std::optional<PredictedEnd> newest) { newest_ = std::move(newest); }
  /// The newest one that has ended.
  const std::optional<PredictedEnd>& newest() const { return newest_; }

 private:
  bool Scheduled(const SnapshotPlace& place);
  void Begin(SnapshotPlace place, const ProbeCallbacks& callbacks, const ExecutionContext& context);
  void End(const absl::Status& status, const ProbeCallbacks& callbacks);

  ModelSession& session_;
  const CooldownOptions options_;
  const QuantizationMeasurement measurement_;
  Probe* const curvature_;
  CooldownTracker* const tracker_;
  const std::vector<int> trained_;
  std::unique_ptr<CooldownRun> run_;
  int64_t number_ = 0;  // of run_
  int64_t step_ = 0;
  int64_t seen_ = 0;  // regular snapshots of the plateau
  int64_t curvature_sequences_ = 0;
  std::optional<PredictedEnd> newest_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_COOLDOWN_PROBE_H_
