#ifndef PTQWATCH_PROBES_PROBE_H_
#define PTQWATCH_PROBES_PROBE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "budget/probe_costs.h"
#include "probes/probe_result.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::internal {

/// Identifies the snapshot to measure.
struct SnapshotPlace {
  std::string run_id = {};
  std::string fingerprint = {};
  int64_t sequence = 0;  ///< of its report
  int64_t step = 0;
  int64_t ordinal = 0;  ///< its number in the slot (SlotPage)
  bool regular = true;  ///< IsRegular
  /// The plan to measure it with; nullopt: all data of the subject.
  std::optional<Plan> plan = {};
  std::optional<double> learning_rate = {};
  LrPhase lr_phase = LrPhase::kUnknown;
};

/// The result of type `Value` among the probes' results, or null.
template <typename Value>
Value* FindResult(absl::Span<ProbeResult> results) {
  for (ProbeResult& result : results) {
    if (auto* value = std::get_if<Value>(&result.value)) return value;
  }
  return nullptr;
}

inline void NoPoll() {}

/// The input of a measurement, in addition to the weights loaded in the session's replica.
struct ProbeInput {
  const SnapshotPlace& place;
  const OptimizerState& optimizer;
  const ProbeState& state;  ///< from the previous snapshot
  /// Gives the caller a chance to do other work. Called between short pieces of work.
  absl::FunctionRef<void()> poll = NoPoll;
  absl::Span<ProbeResult> earlier = {};  ///< of the probes before this one
  /// Whether a later probe or a job uses the quantized weights of this snapshot.
  bool keep_quantized = true;

  /// The earlier result of type `Value`, or null.
  template <typename Value>
  Value* Earlier() const {
    return FindResult<Value>(earlier);
  }
};

/// The properties by which the suite decides how to run a probe.
struct ProbeTraits {
  std::string_view name;
  /// The probes whose results this one uses. It does not run while one of them is switched off.
  std::vector<std::string_view> uses = {};
  bool uses_quantized_weights = false;  ///< of the snapshot; the suite then keeps them
  bool uses_recent_weights = false;     ///< RecentWeights; the suite then collects them
  /// If curvature can be measured, this probe measures only at snapshots whose plan has curvature.
  bool with_curvature = false;
};

/// Describes what a probe will measure and its costs, as far as the probe knows them.
struct ProbeNeeds {
  std::string text = {};      ///< lines for Monitor::Describe
  int64_t bytes = 0;          ///< while measuring, beyond what the session holds
  int64_t kept_bytes = 0;     ///< part of `bytes`, held for later probes
  int64_t always_bytes = 0;   ///< beyond `bytes`, held from snapshot to snapshot
  int64_t lacking_bytes = 0;  ///< approximate need of a probe that is off for lack of memory
  ProbeCost seconds = {};     ///< without name; unknown costs are learned from the first snapshot
};

/// Measures one aspect of a snapshot, on the opened subject it was made for. Not thread-safe.
class Probe {
 public:
  explicit Probe(ProbeTraits traits) : traits_(std::move(traits)) {}
  virtual ~Probe() = default;

  const ProbeTraits& traits() const { return traits_; }
  std::string_view name() const { return traits_.name; }

  /// `available`: bytes that the probe may use.
  virtual ProbeNeeds Needs(int64_t available) const = 0;
  /// Measures the loaded weights. The result depends only on these, `input` and the options, and is
  /// the same to the bit except for durations. Every failure is an outcome of the result; the
  /// caller treats an exception as a failure too.
  virtual ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) = 0;
  /// The result if nothing is measured.
  virtual ProbeResult NotMeasured(ProbeStatus status, std::string detail) const {
    return {.outcome = {std::string(name()), OutcomeOf(status), std::move(detail)}};
  }

  /// Switches the probe off for good; reports give `reason`.
  void Disable(std::string reason) { disabled_ = std::move(reason); }
  /// Why the probe is switched off; empty if it runs.
  const std::string& disabled() const { return disabled_; }

 private:
  const ProbeTraits traits_;
  std::string disabled_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_H_
