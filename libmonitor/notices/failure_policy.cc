#include "notices/failure_policy.h"

namespace ptqwatch::internal {

FailurePolicy::Decision FailurePolicy::Note(absl::Span<const ProbeOutcome> outcomes) {
  using Kind = ProbeOutcome::Kind;
  Decision decision;
  decision.nothing_to_measure = !outcomes.empty();
  for (const ProbeOutcome& outcome : outcomes) {
    if (outcome.kind == Kind::kDisabled) continue;
    decision.nothing_to_measure = false;
    if (outcome.kind != Kind::kOk && !decision.failure) decision.failure = outcome.detail;
    int& in_a_row = in_a_row_[outcome.probe];
    in_a_row = outcome.kind == Kind::kFailed ? in_a_row + 1 : 0;
    if (in_a_row >= max_in_a_row_) {
      decision.switched_off.push_back({outcome.probe, in_a_row, outcome.detail});
    }
  }
  return decision;
}

}  // namespace ptqwatch::internal
