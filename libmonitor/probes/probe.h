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

/// What a probe will measure, and what that takes, as far as it is known.
struct ProbeDescription {
  std::string text = {};      ///< lines for Monitor::Describe
  int64_t bytes = 0;          ///< while measuring, beyond what the session holds
  int64_t kept_bytes = 0;     ///< of these, held for the probes after it
  int64_t always_bytes = 0;   ///< beside these, held from snapshot to snapshot
  int64_t lacking_bytes = 0;  ///< that it would take, off for want of memory; about
};

/// One kind of measurement. Works on the opened subject that it was made for. One thread at a time.
class Probe {
 public:
  virtual ~Probe() = default;

  virtual std::string_view name() const = 0;
  /// The probes whose results it uses. It does not run while one of them is switched off.
  virtual std::vector<std::string_view> needs() const { return {}; }
  /// Whether it uses the quantized weights of the snapshot, which are kept for it then.
  virtual bool uses_quantized_weights() const { return false; }
  /// Whether `plan` has it measure this snapshot.
  virtual bool Due(const std::optional<Plan>& /*plan*/) const { return true; }
  /// `available`: bytes that it may take.
  virtual ProbeDescription Describe(int64_t available) const = 0;

  /// Takes what it needs of the loaded snapshot, which it may not be due to measure. Called before
  /// any probe measures. True where that took time. Must not throw.
  virtual bool Collect(const SnapshotPlace& /*place*/, const ExecutionContext& /*context*/) {
    return false;
  }
  /// Measures what is loaded. The result is a function of the loaded weights, `input`, what the
  /// probe collected and its options, to the bit but for durations. Every failure is an outcome of
  /// the result; a caller treats an exception as one too.
  virtual ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) = 0;
  /// The result where nothing was measured.
  virtual ProbeResult NotMeasured(ProbeStatus status, std::string detail) const = 0;

  /// From now on the probe is not to be run; reports say why.
  virtual void Disable(std::string reason) { disabled_ = std::move(reason); }
  /// Why it does not run; empty where it does.
  const std::string& disabled() const { return disabled_; }

 private:
  std::string disabled_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_H_
