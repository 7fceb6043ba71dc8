#ifndef PTQWATCH_PROBES_PROBE_SUITE_H_
#define PTQWATCH_PROBES_PROBE_SUITE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "probes/curvature_probe.h"
#include "probes/probe.h"
#include "probes/probe_state.h"
#include "probes/quantization_probe.h"
#include "probes/recent_weights.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::internal {

/// What the probes found on one snapshot.
struct Measured {
  std::vector<ProbeResult> results = {};
  /// Of the report whose state this one started from; 0 where nothing was measured.
  int64_t probe_state_sequence = 0;
  /// For the next snapshot; nothing where nothing was measured.
  std::optional<ProbeState> next = {};
  /// Seconds that the thread worked, by probe; without the sleeps of the context's pacer.
  std::map<std::string, double, std::less<>> work_seconds = {};
};

/// What else a snapshot is measured for.
struct MeasureRequest {
  /// Called before every probe, and by probes between short pieces of work.
  std::function<void()> poll = NoPoll;
  /// Whether the caller uses the quantized weights.
  bool keep_quantized = false;
};

/// What a probe is made from. The session and the weights outlive it.
struct ProbeParts {
  ModelSession& session;
  const MonitorOptions& options;
  const CurvatureEngineOptions& engine;
  const ExecutionContext& context;
  const RecentWeights& recent;
};
/// Null if the options leave the probe out.
using MakeProbe = std::function<absl::StatusOr<std::unique_ptr<Probe>>(const ProbeParts&)>;
/// The list of probes, in the order they run: each sees the results of those before it.
std::vector<MakeProbe> AllProbes();

/// How a monitor opens its subject.
ModelSessionOptions SessionOptions(const MonitorOptions& options,
                                   const CurvatureEngineOptions& engine = {},
                                   std::shared_ptr<ByteBudget> bytes = nullptr);

/// All probes of a monitor, on its opened subject. One thread at a time.
class ProbeSuite {
 public:
  /// `session` was opened with the SessionOptions of the same options. Of the context, bytes count.
  /// Errors as those of the probes' Create.
  static absl::StatusOr<std::unique_ptr<ProbeSuite>> Create(
      std::unique_ptr<ModelSession> session, const MonitorOptions& options,
      const CurvatureEngineOptions& engine = {}, const ExecutionContext& context = {},
      const std::vector<MakeProbe>& list = AllProbes());

  /// Copies the snapshot, its weights into the replica. It is not needed afterwards. May throw.
  void Load(const Snapshot& snapshot);

  /// Measures what is loaded, within MonitorOptions::max_snapshot_time, with the place's plan. The
  /// same loaded weights, options, plan and state give the same bits (but for seconds) on any
  /// thread set up by InitComputeThread. Cancelled when the context was.
  absl::StatusOr<Measured> Measure(const SnapshotPlace& place, const ProbeState& state,
                                   const MeasureRequest& request = {},
                                   const ExecutionContext& context = {});
  /// Where the snapshot could not be loaded: the first probe has failed with `status`.
  Measured NotMeasured(const absl::Status& status) const;

  /// What each probe takes if `available` bytes are left; kept_bytes if another probe uses them.
  std::vector<ProbeNeeds> Needs(int64_t available) const;
  /// The seconds among them.
  std::vector<ProbeCost> Costs() const;
  /// Switches a probe off for good. Those that need it do not run any more.
  void Disable(std::string_view name, const std::string& reason);

  ModelSession& session() const { return *session_; }
  const std::vector<std::unique_ptr<Probe>>& probes() const { return probes_; }
  const QuantizationProbe& quantization() const { return *quantization_; }
  /// Null if curvature is switched off.
  CurvatureProbe* curvature() const { return curvature_; }

 private:
  ProbeSuite(std::unique_ptr<ModelSession> session, const MonitorOptions& options);
  void SetAsideForMeasuring(int64_t available);
  bool HasWhatItUses(const Probe& probe) const;
  bool Runs(const Probe& probe) const;  // at some snapshots
  bool MeasuresCurvature() const;
  bool Due(const Probe& probe, const std::optional<Plan>& plan) const;
  bool QuantizedWeightsAreUsed(const std::optional<Plan>& plan) const;
  bool RecentWeightsAreUsed() const;
  // Lowers the budget to what the machine and the device can give at the moment.
  void FitBudget(ByteBudget& budget) const;

  const std::unique_ptr<ModelSession> session_;
  const std::chrono::milliseconds max_snapshot_time_;
  const int64_t max_bytes_;  // 0: no limit
  RecentWeights recent_;
  std::vector<std::unique_ptr<Probe>> probes_;  // in the order they run
  const QuantizationProbe* quantization_ = nullptr;
  CurvatureProbe* curvature_ = nullptr;
  OptimizerState optimizer_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_SUITE_H_
