#include "ranks/merged_series.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ranks/merge_reports.h"

namespace ptqwatch::internal {
namespace {

// A larger number in a journal is damage.
constexpr int64_t kMostRanks = 1'000'000;

// The digest of most parts; on a tie, the lowest rank's among these. A part without a digest was
// not loaded and has no measurements.
std::string MostCommonDigest(const std::vector<Report>& parts) {
  std::map<std::string, int> counts;
  for (const Report& part : parts) ++counts[part.snapshot_digest];
  counts.erase("");
  const Report* most = &parts.front();
  for (const Report& part : parts) {
    if (counts[part.snapshot_digest] > counts[most->snapshot_digest]) most = &part;
  }
  return most->snapshot_digest;
}

}  // namespace

int64_t MergedSeries::RanksOf(const Report& report) {
  return std::clamp<int64_t>(report.ranks.value_or(1), 1, kMostRanks);
}

bool MergedSeries::Needs(int64_t rank) const {
  const auto found = ranks_.find(rank);
  return found == ranks_.end() || found->second.next.empty();
}

void MergedSeries::Add(int64_t number, Report report) {
  Rank& rank = ranks_[number];
  Place& place = rank.newest;
  if (report.attempt != place.attempt) {
    place.rollbacks = 0;
  } else if (report.rolled_back || report.step < place.step) {
    ++place.rollbacks;
  }
  place.attempt = report.attempt;
  place.step = report.step;
  rank.newest_attempt = std::max(rank.newest_attempt, report.attempt);
  rank.fingerprints.try_emplace(report.attempt, report.fingerprint);
  report.rank = number;
  rank.next.push_back({place, std::move(report)});
}

void MergedSeries::KnowAttempt(int64_t rank, int attempt) {
  int& newest = ranks_[rank].newest_attempt;
  newest = std::max(newest, attempt);
}

MergedSeries::Ranks::const_iterator MergedSeries::First() const {
  auto first = ranks_.end();
  for (auto rank = ranks_.begin(); rank != ranks_.end(); ++rank) {
    if (rank->second.next.empty()) continue;
    if (first == ranks_.end() || rank->second.next.front().place < first->second.next.front().place)
      first = rank;
  }
  return first;
}

bool MergedSeries::Joins(const Rank& rank, const Rank& first) const {
  if (rank.next.empty()) return false;
  const auto& [place, report] = rank.next.front();
  const auto& [front, front_report] = first.next.front();
  if (place.step != front.step || RanksOf(report) != RanksOf(front_report) ||
      report.fingerprint != front_report.fingerprint) {
    return false;
  }
  if (!report.snapshot_digest.empty() && report.snapshot_digest == front_report.snapshot_digest) {
    return true;
  }
  const bool newest = place.attempt == rank.newest_attempt && front.attempt == first.newest_attempt;
  return place.rollbacks == front.rollbacks && (place.attempt == front.attempt || newest);
}

std::optional<MergedSeries::Front> MergedSeries::Look() const {
  const auto first = First();
  if (first == ranks_.end()) return std::nullopt;
  const auto& [place, report] = first->second.next.front();
  Front front{.step = place.step, .ranks = RanksOf(report), .lacking = {}};
  auto known = ranks_.begin();
  for (int64_t rank = 0; rank < front.ranks; ++rank) {
    while (known != ranks_.end() && known->first < rank) ++known;
    const bool has = known != ranks_.end() && known->first == rank && !known->second.next.empty();
    if (!has) front.lacking.push_back(rank);
  }
  return front;
}

std::optional<Event> MergedSeries::Compare(const std::vector<int64_t>& numbers) {
  std::vector<ReplicaCheck::Part> parts;
  std::pair<int, int> pass;
  for (const int64_t number : numbers) {
    Rank& rank = ranks_.at(number);
    auto& [place, report] = rank.next.front();
    if (place.attempt != rank.newest_attempt) continue;
    pass = std::max(pass, PassOf(place));
    parts.push_back({.rank = number,
                     .digest = report.snapshot_digest,
                     .parameters = std::move(report.parameter_digests)});
  }
  if (parts.empty() || pass < compared_pass_) return std::nullopt;
  if (std::exchange(compared_pass_, pass) != pass) check_.BeginPass();
  return check_.Compare(ranks_.at(numbers.front()).next.front().place.step, std::move(parts));
}

// A step that goes back belongs to training that is redone, unless its rank is behind the others.
bool MergedSeries::IsLate(const Place& place) {
  const bool is_newer = PassOf(place) > PassOf(merged_);
  if (place.step <= merged_.step && !is_newer) return true;
  if (is_newer) merged_ = place;
  merged_.step = place.step;
  return false;
}

// Whether the lowest rank measures something else in the same attempt.
bool MergedSeries::IsForeign(const Part& part) const {
  const auto& fingerprints = ranks_.begin()->second.fingerprints;
  const auto lowest = fingerprints.find(part.place.attempt);
  return lowest != fingerprints.end() && lowest->second != part.report.fingerprint;
}

MergedSeries::Step MergedSeries::Take() {
  const auto first = First();
  if (IsForeign(first->second.next.front())) {
    ranks_.at(first->first).next.pop_front();
    return {};
  }
  Place place = first->second.next.front().place;
  std::vector<int64_t> members;
  for (const auto& [number, rank] : ranks_) {
    if (!Joins(rank, first->second)) continue;
    members.push_back(number);
    place = std::max(place, rank.next.front().place);
  }
  Step step;
  step.diverged = Compare(members);
  std::vector<Report> parts;
  for (const int64_t number : members) {
    std::deque<Part>& next = ranks_.at(number).next;
    attempt_ = std::max(attempt_, next.front().place.attempt);
    parts.push_back(std::move(next.front().report));
    next.pop_front();
  }
  if (step.diverged) {
    step.diverged->time_unix_seconds = parts.front().snapshot_time_unix_seconds;
  }
  if (IsLate(place)) return step;
  const auto count = static_cast<int64_t>(parts.size());
  const bool complete = count == RanksOf(parts.front());
  const std::string digest = MostCommonDigest(parts);
  std::erase_if(parts, [&](const Report& part) {
    return !part.snapshot_digest.empty() && part.snapshot_digest != digest;
  });
  const bool equal = static_cast<int64_t>(parts.size()) == count;
  step.report = MergeReports(std::move(parts), complete && equal);
  step.report->snapshot_digest = digest;
  // The report whose probe state this one starts from is the one before, in every rank.
  if (step.report->probe_state_sequence > 0) step.report->probe_state_sequence = sequence_;
  step.report->sequence = ++sequence_;
  step.report->attempt = attempt_;
  return step;
}

}  // namespace ptqwatch::internal
