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
#include "probes/work_share.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::internal {

/// The results of all probes on one snapshot.
struct Measured {
  std::vector<ProbeResult> results = {};
  /// Sequence number of the report that left the state used here; 0 if nothing was measured.
  int64_t probe_state_sequence = 0;
  /// State for the next snapshot; nullopt if nothing was measured.
  std::optional<ProbeState> next = {};
  /// Seconds of work by probe, without the pauses of the context's pacer.
  std::map<std::string, double, std::less<>> work_seconds = {};
  /// Whether MonitorOptions::max_snapshot_time was over before everything was measured.
  bool cut_short = false;
};

/// Additional arguments of Measure.
struct MeasureRequest {
  /// Called before every probe, and by probes between short pieces of work.
  std::function<void()> poll = NoPoll;
  /// Whether the caller uses the quantized weights.
  bool keep_quantized = false;
};

/// Arguments for making a probe. The session and the weights outlive the probe.
struct ProbeParts {
  ModelSession& session;
  const MonitorOptions& options;
  const CurvatureEngineOptions& engine;
  const ExecutionContext& context;
  const RecentWeights& recent;
  const WorkShare& share;
  // Set by the probe itself, for the probes after it and for the suite; null: there is none.
  const QuantizationProbe* quantization = nullptr;
  CurvatureProbe* curvature = nullptr;
};
/// Returns null if the options leave the probe out.
using MakeProbe = std::function<absl::StatusOr<std::unique_ptr<Probe>>(ProbeParts&)>;
/// All probes, in the order they run: each sees the results of earlier ones.
std::vector<MakeProbe> AllProbes();

/// The options with which a monitor opens its subject.
ModelSessionOptions SessionOptions(const MonitorOptions& options,
                                   const CurvatureEngineOptions& engine = {},
                                   std::shared_ptr<ByteBudget> bytes = nullptr);

/// All probes of a monitor, on its opened subject. Not thread-safe.
class ProbeSuite {
 public:
  /// `session` must have been opened with the SessionOptions of the same options. Only the bytes of
  /// the context are used. Returns the errors of the probes' Create.
  static absl::StatusOr<std::unique_ptr<ProbeSuite>> Create(
      std::unique_ptr<ModelSession> session, const MonitorOptions& options,
      const CurvatureEngineOptions& engine = {}, const ExecutionContext& context = {},
      const std::vector<MakeProbe>& list = AllProbes());

  /// Copies the snapshot and loads its weights into the replica. The snapshot is not needed
  /// afterwards. May throw.
  void Load(const Snapshot& snapshot);

  /// Measures the loaded snapshot by the place's plan, within MonitorOptions::max_snapshot_time.
  /// The same loaded weights, options, plan and state give the same bits (except for seconds) on
  /// any thread set up by InitComputeThread. Cancelled if the context is.
  absl::StatusOr<Measured> Measure(const SnapshotPlace& place, const ProbeState& state,
                                   const MeasureRequest& request = {},
                                   const ExecutionContext& context = {});
  /// For a snapshot that could not be loaded: the first probe fails with `status`.
  Measured NotMeasured(const absl::Status& status) const;

  /// The needs of each probe if `available` bytes are left. kept_bytes is 0 unless another probe
  /// uses the kept data.
  std::vector<ProbeNeeds> Needs(int64_t available) const;
  /// The time costs among the needs.
  std::vector<ProbeCost> Costs() const;
  /// Switches a probe off for good. Probes that use its results stop running as well.
  void Disable(std::string_view name, const std::string& reason);

  ModelSession& session() const { return *session_; }
  const std::vector<std::unique_ptr<Probe>>& probes() const { return probes_; }
  const QuantizationProbe& quantization() const { return *quantization_; }
  const WorkShare& share() const { return share_; }
  /// Null if curvature is switched off or other ranks measure all of it.
  CurvatureProbe* curvature() const { return curvature_; }

 private:
  ProbeSuite(std::unique_ptr<ModelSession> session, const MonitorOptions& options);
  void SetAsideForMeasuring(int64_t available);
  bool HasItsInputs(const Probe& probe) const;
  bool Runs(const Probe& probe) const;  // at some snapshots
  bool MeasuresCurvature() const;
  bool Due(const Probe& probe, const std::optional<Plan>& plan) const;
  bool QuantizedWeightsAreUsed(const std::optional<Plan>& plan) const;
  bool RecentWeightsAreUsed() const;
  // Lowers the budget to the memory that the machine and the device have available.
  void FitBudgets() const;

  const std::unique_ptr<ModelSession> session_;
  const std::chrono::milliseconds max_snapshot_time_;
  const int64_t host_limit_;
  const WorkShare share_;
  RecentWeights recent_;
  std::vector<std::unique_ptr<Probe>> probes_;  // in the order they run
  const QuantizationProbe* quantization_ = nullptr;
  CurvatureProbe* curvature_ = nullptr;
  OptimizerState optimizer_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_SUITE_H_
