#include "ranks/merge_status.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/strings.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kNamedReasons = 3;

bool HasEnded(Health health) { return health == Health::kStopped || health == Health::kInert; }

bool Runs(const RankView& view) {
  return view.status && !HasEnded(view.status->monitor.health) &&
         view.status->monitor.health != Health::kSilent;
}

RankStatus StatusOf(const RankView& view) {
  if (!view.status) {
    return {.rank = view.rank,
            .health = Health::kDegraded,
            .health_reason = "it has no status file",
            .snapshot_step = view.snapshot_step};
  }
  const MonitorStatus& monitor = view.status->monitor;
  return {.rank = view.rank,
          .health = monitor.health,
          .health_reason = monitor.health_reason,
          .snapshot_step = view.snapshot_step,
          .reports_total = monitor.reports_total};
}

// Why the reports of a rank are not merged with those of the lowest rank; empty if they are.
std::string Mismatch(const RankView& view, const RankView& lowest) {
  const RunInfo& own = view.status->run;
  const RunInfo& run = lowest.status->run;
  if (own.run_id != run.run_id) {
    // A directory may be left over from another run.
    if (!Runs(view) || !Runs(lowest)) return "";
    return StrCat("it is of run ", own.run_id, ", and rank ", lowest.rank, " of ", run.run_id);
  }
  if (own.attempt != run.attempt || own.fingerprint.empty() || run.fingerprint.empty() ||
      own.fingerprint == run.fingerprint) {
    return "";
  }
  return StrCat("its model, batches, quantizers, options or seed are not those of rank ",
                lowest.rank, " (fingerprint ", own.fingerprint, ", not ", run.fingerprint, ")");
}

void AddMismatch(const RankView& view, const RankView& lowest, RankStatus& status) {
  const std::string mismatch = Mismatch(view, lowest);
  if (mismatch.empty()) return;
  if (!HasEnded(status.health)) status.health = Health::kDegraded;
  status.health_reason +=
      StrCat(status.health_reason.empty() ? "" : "; ", mismatch, ": what it measures is left out");
}

void AddDrops(const std::vector<DroppedReports>& more, std::vector<DroppedReports>& drops) {
  for (const DroppedReports& drop : more) {
    const auto same = std::find_if(drops.begin(), drops.end(), [&](const DroppedReports& known) {
      return known.exporter == drop.exporter && known.reason == drop.reason;
    });
    if (same == drops.end()) {
      drops.push_back(drop);
    } else {
      same->count += drop.count;
    }
  }
}

template <typename Values>
void AddEach(const Values& more, Values& values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] += more[i];
}

void Add(const MonitorStatus& more, MonitorStatus& status) {
  for (const auto member :
       {&MonitorStatus::reports_total, &MonitorStatus::probe_failures_total,
        &MonitorStatus::state_write_failures_total, &MonitorStatus::memory_bytes,
        &MonitorStatus::memory_peak_bytes, &MonitorStatus::memory_budget_bytes}) {
    status.*member += more.*member;
  }
  status.stall_seconds_total += more.stall_seconds_total;
  AddEach(more.snapshots, status.snapshots);
  AddEach(more.stall_buckets, status.stall_buckets);
  AddEach(more.events, status.events);
  AddDrops(more.dropped_reports, status.dropped_reports);
  status.step = std::max(status.step, more.step);
  status.steps_total = std::max(status.steps_total, more.steps_total);
  status.last_step_unix_seconds =
      std::max(status.last_step_unix_seconds, more.last_step_unix_seconds);
  status.last_sequence = std::max(status.last_sequence, more.last_sequence);
  status.busy |= more.busy;
  // All ranks train at the pace of the slowest.
  if (more.overhead_ratio.value_or(-1) > status.overhead_ratio.value_or(-1)) {
    status.overhead_ratio = more.overhead_ratio;
    status.overhead_low_ratio = more.overhead_low_ratio;
    status.overhead_high_ratio = more.overhead_high_ratio;
    status.overhead_comparisons = more.overhead_comparisons;
  }
  if (status.slice.state == SliceState::kNone) status.slice = more.slice;
  if (status.cooldown.state == CooldownState::kNone) status.cooldown = more.cooldown;
  if (status.server.state == ServerState::kNone) status.server = more.server;
}

// "rank 2: why; rank 3: why; and 5 more ranks", of the ranks that `is_meant` selects.
template <typename Predicate>
std::string Reasons(const std::vector<RankStatus>& ranks, Predicate is_meant) {
  std::string text;
  size_t count = 0;
  for (const RankStatus& rank : ranks) {
    if (!is_meant(rank) || ++count > kNamedReasons) continue;
    const std::string reason =
        rank.health_reason.empty() ? std::string(ToString(rank.health)) : rank.health_reason;
    text += StrCat(text.empty() ? "" : "; ", "rank ", rank.rank, ": ", reason);
  }
  if (count > kNamedReasons) text += StrCat("; and ", count - kNamedReasons, " more ranks");
  return text;
}

void SetHealth(const std::vector<RankView>& views, MonitorStatus& status) {
  const auto count = [&](auto is_meant) {
    return std::count_if(status.ranks.begin(), status.ranks.end(), is_meant);
  };
  const auto all = static_cast<std::ptrdiff_t>(status.ranks.size());
  const bool any_runs = std::any_of(views.begin(), views.end(), Runs);
  const auto is = [](Health health) {
    return [health](const RankStatus& rank) { return rank.health == health; };
  };
  const auto has_ended = [](const RankStatus& rank) { return HasEnded(rank.health); };
  status.health_reason.clear();
  if (count(is(Health::kInert)) == all) {
    status.health = Health::kInert;
    status.health_reason = Reasons(status.ranks, is(Health::kInert));
  } else if (!any_runs && count(has_ended) > 0) {
    status.health = Health::kStopped;
  } else if (count(is(Health::kStarting)) == all) {
    status.health = Health::kStarting;
  } else {
    const auto is_short = [&](const RankStatus& rank) {
      return rank.health == Health::kDegraded || rank.health == Health::kSilent || has_ended(rank);
    };
    status.health_reason = Reasons(status.ranks, is_short);
    status.health = count(is(Health::kSilent)) == all ? Health::kSilent
                    : status.health_reason.empty()    ? Health::kOk
                                                      : Health::kDegraded;
  }
}

}  // namespace

RunStatus MergeStatus(const std::vector<RankView>& ranks) {
  RunStatus merged;
  const auto lowest = std::find_if(ranks.begin(), ranks.end(),
                                   [](const RankView& view) { return view.status.has_value(); });
  auto base = std::find_if(ranks.begin(), ranks.end(), Runs);
  if (base == ranks.end()) base = lowest;
  if (base != ranks.end()) merged = *base->status;
  for (const RankView& view : ranks) {
    RankStatus& rank = merged.monitor.ranks.emplace_back(StatusOf(view));
    if (!view.status) continue;
    AddMismatch(view, *lowest, rank);
    merged.run.attempt = std::max(merged.run.attempt, view.status->run.attempt);
    merged.time_unix_seconds = std::max(merged.time_unix_seconds, view.status->time_unix_seconds);
    if (&view != &*base) Add(view.status->monitor, merged.monitor);
  }
  if (!ranks.empty()) SetHealth(ranks, merged.monitor);
  return merged;
}

}  // namespace ptqwatch::internal
