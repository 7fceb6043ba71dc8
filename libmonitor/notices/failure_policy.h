#ifndef PTQWATCH_NOTICES_FAILURE_POLICY_H_
#define PTQWATCH_NOTICES_FAILURE_POLICY_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "notices/probe_outcome.h"

namespace ptqwatch::internal {

/// Counts consecutive failures of each probe, by name, and decides which probes to switch off. Not
/// thread-safe.
class FailurePolicy {
 public:
  struct SwitchedOff {
    std::string probe;
    int failures = 0;         ///< in a row
    std::string detail = {};  ///< of the last failure
  };
  struct Decision {
    /// The failure to announce: the detail of the first probe that is neither ok nor disabled.
    /// Later failures usually follow from it.
    std::optional<std::string> failure = {};
    std::vector<SwitchedOff> switched_off = {};
    /// Every probe is disabled: there is nothing left to measure.
    bool nothing_to_measure = false;
  };

  /// REQUIRES: max_failures_in_a_row > 0.
  explicit FailurePolicy(int max_failures_in_a_row) : max_in_a_row_(max_failures_in_a_row) {}

  /// Takes the outcomes of one snapshot. Only ProbeOutcome::Kind::kFailed counts. A disabled probe
  /// is ignored; any other outcome, such as a snapshot that cannot be measured, resets the count.
  Decision Note(absl::Span<const ProbeOutcome> outcomes);

 private:
  const int max_in_a_row_;
  std::map<std::string, int> in_a_row_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_NOTICES_FAILURE_POLICY_H_
