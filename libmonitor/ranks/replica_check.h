#ifndef PTQWATCH_RANKS_REPLICA_CHECK_H_
#define PTQWATCH_RANKS_REPLICA_CHECK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Compares the parameters of data-parallel replicas by the digests in their reports. Remembers the
/// newest 16 steps, so that a report that comes late is compared too. Not thread-safe.
class ReplicaCheck {
 public:
  /// The digests that one rank reports.
  struct Part {
    int64_t rank = 0;
    std::string digest;  ///< Report::snapshot_digest; empty: not compared
    std::vector<ParameterDigest> parameters = {};
  };

  /// Compares the ranks at `step`, including those of earlier calls for it. Returns an event if
  /// they have begun to differ, in other ranks than before, or if they are equal again: that is, if
  /// all that differed are among the ranks of a step and equal.
  std::optional<Event> Compare(int64_t step, std::vector<Part> parts);

  /// Another attempt has begun, or training has gone back: forgets what it knows.
  void BeginPass();

  const ReplicaStatus& status() const { return status_; }

 private:
  struct Step {
    int64_t step = 0;
    std::map<int64_t, std::string> digests;                          // by rank
    std::map<std::string, std::vector<ParameterDigest>> parameters;  // by digest
  };
  Step& Remember(int64_t step, std::vector<Part> parts);
  std::optional<Event> Differ(const Step& at);

  ReplicaStatus status_;
  std::vector<int64_t> suspects_;  // ranks that must be equal to others before the alarm ends
  std::deque<Step> steps_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_RANKS_REPLICA_CHECK_H_
