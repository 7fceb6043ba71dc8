#ifndef PTQWATCH_RANKS_MERGED_SERIES_H_
#define PTQWATCH_RANKS_MERGED_SERIES_H_

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/report.h"
#include "ptqwatch/status.h"
#include "ranks/replica_check.h"

namespace ptqwatch::internal {

/// Merges the journals of a run's ranks into one series, a step at a time, from the next report of
/// each. Reads nothing and knows no time, so the result depends on the reports alone. Not
/// thread-safe.
///
/// Steps come in the order of (attempt, rollbacks within it, step). Reports of one step belong
/// together if they agree in these, or if their parameters are equal: training that is redone from
/// a checkpoint, or a rank that counts its attempts differently, is thus not taken for another
/// replica. Only the parts with the parameters of most ranks are merged. Reports with another
/// fingerprint than the lowest rank has in the same attempt are left out: alternating, they would
/// cut the series at every step.
class MergedSeries {
 public:
  /// The step that comes next, and the ranks of its attempt that have no next report.
  struct Front {
    int64_t step = 0;
    int64_t ranks = 1;
    std::vector<int64_t> lacking;
    friend bool operator==(const Front&, const Front&) = default;
  };
  struct Step {
    /// With `ranks` and a `sequence` that counts the merged reports. Absent if the step, or a later
    /// one, has been merged without these parts: they came late.
    std::optional<Report> report;
    std::optional<Event> diverged;  ///< as ReplicaCheck::Compare
  };

  /// Report::ranks, or the nearest number that can be one.
  static int64_t RanksOf(const Report& report);

  /// Whether the rank has no next report.
  bool Needs(int64_t rank) const;
  /// Adds the next report of a rank's journal. To save memory, call it only if Needs(rank).
  void Add(int64_t rank, Report report);
  /// Tells of an attempt that has begun, which may have no report yet. Ranks are compared only by
  /// reports of their newest attempts.
  void KnowAttempt(int64_t rank, int attempt);

  /// nullopt if no rank has a next report.
  std::optional<Front> Look() const;
  /// Merges the step at the front with the parts that have come. REQUIRES: Look() is not nullopt.
  Step Take();

  const ReplicaStatus& replicas() const { return check_.status(); }
  int64_t sequence() const { return sequence_; }

 private:
  struct Place {
    int attempt = 0;
    int rollbacks = 0;
    int64_t step = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Part {
    Place place;
    Report report;
  };
  struct Rank {
    Place newest;                             // of the newest report
    std::map<int, std::string> fingerprints;  // by attempt
    int newest_attempt = 0;
    std::deque<Part> next;
  };
  static std::pair<int, int> PassOf(const Place& place) { return {place.attempt, place.rollbacks}; }
  using Ranks = std::map<int64_t, Rank>;

  Ranks::const_iterator First() const;
  bool Joins(const Rank& rank, const Rank& first) const;
  bool IsForeign(const Part& part) const;
  std::optional<Event> Compare(const std::vector<int64_t>& numbers);
  bool IsLate(const Place& place);

  Ranks ranks_;
  Place merged_;  // the highest attempt so far, and the newest step
  int64_t sequence_ = 0;
  int attempt_ = 0;  // of the newest merged report: the highest so far
  std::pair<int, int> compared_pass_;
  ReplicaCheck check_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_RANKS_MERGED_SERIES_H_
