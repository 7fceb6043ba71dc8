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
#include "probes/probe_costs.h"
#include "probes/probe_result.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::internal {

/// Which snapshot is measured.
struct SnapshotPlace {
  std::string run_id = {};
  std::string fingerprint = {};
  int64_t sequence = 0;  ///< of its report
  int64_t step = 0;
  int64_t ordinal = 0;  ///< of the snapshots taken by this process, from 1
  bool regular = true;  ///< IsRegular
  /// What it is measured with; nothing: all that the subject has.
  std::optional<Plan> plan = {};
  double learning_rate = 0;
  LrPhase lr_phase = LrPhase::kUnknown;
};

/// The result of this type among those of the probes, or null.
template <typename Value>
Value* FindResult(absl::Span<ProbeResult> results) {
  for (ProbeResult& result : results) {
    if (auto* value = std::get_if<Value>(&result.value)) return value;
  }
  return nullptr;
}

inline void NoPoll() {}

/// What a probe measures, beside the weights loaded in the session's replica.
struct ProbeInput {
  const SnapshotPlace& place;
  const OptimizerState& optimizer;
  const ProbeState& state;  ///< what the previous snapshot left
  /// Lets the caller look at what else there is to do. Called between short pieces of work.
  absl::FunctionRef<void()> poll = NoPoll;
  absl::Span<ProbeResult> earlier = {};  ///< of the probes before this one
  /// Whether a later probe or a job uses the quantized weights of this snapshot.
  bool keep_quantized = true;

  /// The earlier result of this type, or null.
  template <typename Value>
  Value* Earlier() const {
    return FindResult<Value>(earlier);
  }
};

/// What the suite goes by when it runs a probe.
struct ProbeTraits {
  std::string_view name;
  /// The probes whose results it uses. It does not run while one of them is switched off.
  std::vector<std::string_view> uses = {};
  bool uses_quantized_weights = false;  ///< of the snapshot, which are kept for it then
  bool uses_recent_weights = false;     ///< RecentWeights, which are collected for it then
  /// Measures only at snapshots whose plan has curvature, if curvature can be measured.
  bool with_curvature = false;
};

/// What a probe will measure, and what that takes, as far as the probe itself knows.
struct ProbeNeeds {
  std::string text = {};      ///< lines for Monitor::Describe
  int64_t bytes = 0;          ///< while measuring, beyond what the session holds
  int64_t kept_bytes = 0;     ///< of these, held for the probes after it
  int64_t always_bytes = 0;   ///< beside these, held from snapshot to snapshot
  int64_t lacking_bytes = 0;  ///< that it would take, off for want of memory; about
  ProbeCost seconds = {};  ///< without name; what is not known is learned from the first snapshot
};

/// One kind of measurement of a snapshot. Works on the opened subject that it was made for. One
/// thread at a time.
class Probe {
 public:
  explicit Probe(ProbeTraits traits) : traits_(std::move(traits)) {}
  virtual ~Probe() = default;

  const ProbeTraits& traits() const { return traits_; }
  std::string_view name() const { return traits_.name; }

  /// `available`: bytes that it may take.
  virtual ProbeNeeds Needs(int64_t available) const = 0;
  /// Measures what is loaded. The result is a function of the loaded weights, `input` and its
  /// options, to the bit but for durations. Every failure is an outcome of the result; a caller
  /// treats an exception as one too.
  virtual ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) = 0;
  /// The result if nothing was measured.
  virtual ProbeResult NotMeasured(ProbeStatus status, std::string detail) const {
    return {.outcome = {std::string(name()), OutcomeOf(status), std::move(detail)}};
  }

  /// From now on the probe is not to be run; reports say why.
  void Disable(std::string reason) { disabled_ = std::move(reason); }
  /// Why it does not run; empty while it does.
  const std::string& disabled() const { return disabled_; }

 private:
  const ProbeTraits traits_;
  std::string disabled_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_H_
