#include "analysis/history.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "report/report_source.h"

namespace ptqwatch::internal {
namespace {

// Snapshots that are remembered. Beyond this number the older half is thinned out.
constexpr size_t kMostPoints = 1024;
// Snapshots in a baseline: enough to estimate its scatter, few enough to follow a slow drift.
constexpr size_t kMostBaseline = 48;
// With at least this many, the first third is left out, up to a limit, because the error climbs
// steeply after the warm-up.
constexpr size_t kMinForWarmIn = 6;
constexpr size_t kLongestWarmIn = 8;
// Lost share of the learning rate up to which a snapshot belongs to the plateau: the smallest limit
// that gives a baseline.
constexpr double kPlateauLimits[] = {0.02, 0.1, 0.2, 0.35};
constexpr size_t kEnoughPlateau = 6;
constexpr std::ptrdiff_t kFewestPlateau = 4;  // in a baseline: Composite::kMinReference
constexpr double kUnknownShare = 0.5;
// Allowed number of snapshots without change: in low precision, all updates of an interval may be
// rounded away.
constexpr size_t kStillSnapshots = 2;

std::string QuantizersOf(const Report& report) {
  std::string key;
  for (const QuantizationReport& entry : report.quantization) {
    key += StrCat(" ", ShortName(KeyOf(entry)), "g", entry.group_size, entry.symmetric);
  }
  return key;
}

Point PointOf(const Report& report) {
  Point point;
  point.sequence = report.sequence;
  point.step = report.step;
  point.log_step = std::log(static_cast<double>(std::max<int64_t>(report.step, 1)));
  point.learning_rate = report.learning_rate.value_or(std::nan(""));
  point.rising = report.lr_phase == LrPhase::kWarmup || report.lr_phase == LrPhase::kRewarm;
  point.falling = report.lr_phase == LrPhase::kDecay;
  if (report.probe_status == ProbeStatus::kOk && report.probe_loss_nats &&
      std::isfinite(*report.probe_loss_nats)) {
    point.loss_nats = report.probe_loss_nats;
  }
  for (const QuantizationReport& entry : report.quantization) {
    if (entry.status != ProbeStatus::kOk || !entry.loss_nats || !std::isfinite(*entry.loss_nats)) {
      continue;
    }
    point.quantized.push_back({entry.method, entry.bits, entry.format, *entry.loss_nats});
  }
  point.series = SeriesOf(report);
  point.watched = WatchedSeriesOf(report, point.series);
  point.digest = report.snapshot_digest;
  return point;
}

}  // namespace

size_t History::Add(const Report& report) {
  std::string quantizers = QuantizersOf(report);
  const bool same_quantizers = quantizers.empty() || quantizers == quantizers_;
  if (report.fingerprint != fingerprint_ || !same_quantizers) points_.clear();
  if (!same_quantizers) quantizers_ = std::move(quantizers);
  fingerprint_ = report.fingerprint;
  Point point = PointOf(report);
  // Checkpoints are measured in any order, and a run of them is never rolled back.
  const bool late = report.source == kTrajectorySource ||
                    (!points_.empty() && !report.rolled_back && report.sequence > 0 &&
                     report.sequence < points_.back().sequence);
  if (!late) {
    while (!points_.empty() && points_.back().step >= report.step) points_.pop_back();
  }
  auto place =
      std::upper_bound(points_.begin(), points_.end(), point.step,
                       [](int64_t step, const Point& earlier) { return step < earlier.step; });
  place = points_.insert(place, std::move(point));
  size_t index = static_cast<size_t>(place - points_.begin());
  FindDecayed();
  ChooseTokens(points_[index]);
  return points_.size() > kMostPoints ? ThinOut(index) : index;
}

// The baseline stays, and the first snapshot at the rate of the plateau, because an alarm may last
// longer than kMostPoints.
size_t History::ThinOut(size_t added) {
  std::vector<size_t> kept = Candidates(points_.size(), PlateauLimit(points_.size()));
  constexpr size_t kMostKept = kMostBaseline + kLongestWarmIn;
  if (kept.size() > kMostKept) kept.erase(kept.begin(), kept.end() - kMostKept);
  const auto highest = std::find_if(points_.begin(), points_.end(),
                                    [](const Point& point) { return point.decayed == 0; });
  const auto first = static_cast<size_t>(highest - points_.begin());
  std::vector<Point> points;
  size_t place = added;
  bool leave_out = false;
  for (size_t i = 0; i < points_.size(); ++i) {
    const bool stays = i >= kMostPoints / 2 || i == added || i == first ||
                       std::binary_search(kept.begin(), kept.end(), i);
    if (!stays && (leave_out = !leave_out)) continue;
    if (i == added) place = points.size();
    points.push_back(std::move(points_[i]));
  }
  points_ = std::move(points);
  return place;
}

std::optional<int64_t> History::StillSince() const {
  size_t first = points_.size() - 1;
  while (first > 0 && !points_[first].digest.empty() && points_[first].learning_rate > 0 &&
         points_[first - 1].digest == points_[first].digest) {
    --first;
  }
  if (points_.size() - first <= kStillSnapshots) return std::nullopt;
  return points_[first].step;
}

void History::ForgetMeasuredSince(int64_t step) {
  for (auto point = points_.rbegin(); point != points_.rend() && point->step > step; ++point) {
    point->loss_nats.reset();
    point->quantized.clear();
    point->series.clear();
    point->watched.reset();
  }
}

void History::ChooseTokens(Point& added) {
  const auto has = [](const Point& point) { return point.watched && point.watched->pooled; };
  const auto lacks = [](const Point& point) { return point.watched && !point.watched->pooled; };
  const bool pooled = std::any_of(points_.begin(), points_.end(), has) &&
                      std::none_of(points_.begin() + 1, points_.end(), lacks);
  const auto choose = [&](Point& point) {
    if (!point.watched) return;
    const auto& [name, first, further] = *point.watched;
    if (pooled && !further) {
      point.series.erase(name);
    } else {
      point.series.insert_or_assign(name, pooled ? *further : first);
    }
  };
  if (std::exchange(pooled_, pooled) == pooled) return choose(added);
  for (Point& point : points_) choose(point);
}

// The plateau is the highest rate so far: after a step to a higher rate, the snapshots at that rate
// form the plateau and earlier ones do not. A rate that was lowered before a baseline's worth of
// snapshots had it is no plateau.
double History::PlateauRate() const {
  double highest = 0;
  std::vector<double> rates;
  for (const Point& point : points_) {
    if (!std::isfinite(point.learning_rate)) continue;
    highest = std::max(highest, point.learning_rate);
    if (!point.rising && !point.series.empty()) rates.push_back(point.learning_rate);
  }
  const double newest = points_.back().learning_rate;
  const auto is_plateau = [&](double rate) {
    const double lowest = (1 - kPlateauLimits[std::size(kPlateauLimits) - 1]) * rate;
    return std::count_if(rates.begin(), rates.end(), [&](double other) {
             return other >= lowest && other <= rate;
           }) >= kFewestPlateau;
  };
  if (!(newest < highest) || is_plateau(highest)) return highest;
  std::sort(rates.begin(), rates.end(), std::greater<>());
  for (const double rate : rates) {
    if (rate > 0 && newest <= rate && is_plateau(rate)) return rate;
  }
  return highest;
}

void History::FindDecayed() {
  const double plateau = PlateauRate();
  for (Point& point : points_) {
    const double share = point.learning_rate / plateau;
    // Without a known rate, the phase may still be known.
    point.decayed = plateau > 0 && std::isfinite(share) ? std::clamp(1 - share, 0.0, 1.0)
                    : point.falling                     ? kUnknownShare
                                                        : 0;
  }
}

// Computed from the remembered snapshots, so that a rollback undoes an alarm.
std::vector<bool> History::Alarmed() const {
  std::vector<bool> alarmed(points_.size(), false);
  int64_t onset = std::numeric_limits<int64_t>::max();  // the earliest of this and later alarms
  for (size_t i = points_.size(); i > 0; --i) {
    const Point& point = points_[i - 1];
    if (IsAlarm(point.state) || point.state == VerdictState::kRecovering) {
      onset = std::min(onset, point.onset_step.value_or(point.step));
    }
    alarmed[i - 1] = point.step >= onset;
  }
  return alarmed;
}

std::vector<size_t> History::Candidates(size_t end, double limit) const {
  std::vector<size_t> found;
  const std::vector<bool> alarmed = Alarmed();
  for (size_t i = 0; i < end; ++i) {
    const Point& point = points_[i];
    if (point.rising || point.series.empty() || point.decayed > limit) continue;
    if (alarmed[i]) continue;
    found.push_back(i);
  }
  return found;
}

double History::PlateauLimit(size_t end) const {
  for (const double limit : kPlateauLimits) {
    if (Candidates(end, limit).size() >= kEnoughPlateau) return limit;
  }
  return kPlateauLimits[0];
}

std::vector<size_t> History::Plateau(size_t end) const {
  std::vector<size_t> plateau = Candidates(end, PlateauLimit(end));
  size_t first = plateau.size() >= kMinForWarmIn ? std::min(plateau.size() / 3, kLongestWarmIn) : 0;
  if (plateau.size() - first > kMostBaseline) first = plateau.size() - kMostBaseline;
  plateau.erase(plateau.begin(), plateau.begin() + static_cast<std::ptrdiff_t>(first));
  return plateau;
}

}  // namespace ptqwatch::internal
