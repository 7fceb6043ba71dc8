#include "analysis/analyzer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMinBaseline = 3;
constexpr size_t kMaxBaseline = 32;
// With at least this many stable-phase points the first third is left out, because the error still
// climbs after the warm-up.
constexpr size_t kMinForWarmIn = 6;
// The median absolute deviation of a Gaussian is 1 / 1.4826 of its standard deviation.
constexpr double kMadToSigma = 1.4826;
constexpr double kSigmas = 3;
// About two standard deviations of the scatter between checkpoints. A few points can agree by
// chance, and their MAD is then too small.
constexpr double kMinRise = 0.25;
// The baseline's scatter already contains the error bars of its points: the error bar of the newest
// point is a floor, not an extra term.
constexpr double kStderrs = 2;

double Median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + half, values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + half) + upper) / 2;
}

// The entry to watch. It is chosen by what was asked for, not by what was measured, so the choice
// is the same in every report.
const QuantizationReport* Watched(const Report& report) {
  const QuantizationReport* best = nullptr;
  const auto rank = [](const QuantizationReport& entry) {
    if (entry.bits < 3) return 0;
    return entry.method == QuantizationMethod::kGptq ? 2 : 1;
  };
  for (const QuantizationReport& entry : report.quantization) {
    if (best == nullptr || rank(entry) > rank(*best) ||
        (rank(entry) == rank(*best) && rank(entry) > 0 && entry.bits < best->bits)) {
      best = &entry;
    }
  }
  return best;
}

std::string Name(const QuantizationReport& entry) {
  return StrCat(entry.bits, "-bit ", absl::AsciiStrToUpper(StrCat(ToString(entry.method))));
}

Verdict Unknown(std::string summary) {
  Verdict verdict;
  verdict.state = VerdictState::kUnknown;
  verdict.summary = std::move(summary);
  return verdict;
}

std::string WhyNotMeasured(const Report& report, const QuantizationReport& entry) {
  const std::string_view reason =
      entry.status == ProbeStatus::kOk ? "no finite loss increase" : ToString(entry.status);
  std::string text = StrCat(Name(entry), " was not measured at step ", report.step, ": ", reason);
  if (!entry.status_detail.empty()) text += StrCat(" (", entry.status_detail, ")");
  return text;
}

}  // namespace

Analyzer::Candidates Analyzer::FindCandidates() const {
  Candidates stable;
  Candidates with_slow_decay{.plateau = false, .deltas = {}};
  for (const Point& point : points_) {
    if (point.phase == LrPhase::kStable) stable.deltas.push_back(point.delta_nats);
    if (point.phase == LrPhase::kStable || point.phase == LrPhase::kSlowDecay) {
      with_slow_decay.deltas.push_back(point.delta_nats);
    }
  }
  // A schedule without a plateau (cosine) has only its slow first half.
  return stable.deltas.size() >= kMinBaseline ||
                 stable.deltas.size() == with_slow_decay.deltas.size()
             ? stable
             : with_slow_decay;
}

std::optional<Analyzer::Baseline> Analyzer::MakeBaseline(double stderr_nats) const {
  auto [plateau, window] = FindCandidates();
  if (window.size() < kMinBaseline) return std::nullopt;
  size_t first = window.size() >= kMinForWarmIn ? window.size() / 3 : 0;
  if (window.size() - first > kMaxBaseline) first = window.size() - kMaxBaseline;
  window.erase(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(first));

  Baseline baseline;
  baseline.plateau = plateau;
  baseline.snapshots = static_cast<int>(window.size());
  baseline.median = Median(window);
  for (double& value : window) value = std::abs(value - baseline.median);
  const double sigma = kMadToSigma * Median(std::move(window));
  baseline.limit =
      baseline.median +
      std::max({kSigmas * sigma, kMinRise * std::abs(baseline.median), kStderrs * stderr_nats});
  return baseline;
}

Verdict Analyzer::Add(const Report& report) {
  const QuantizationReport* entry = Watched(report);
  const std::string series = entry == nullptr
                                 ? std::string()
                                 : StrCat(ToString(entry->method), " b", entry->bits, " g",
                                          entry->group_size, " ", entry->symmetric);
  if (report.fingerprint != fingerprint_ || series != series_) points_.clear();
  fingerprint_ = report.fingerprint;
  series_ = series;
  // A step seen before is a rollback or a second snapshot of the same step: the newer one counts.
  while (!points_.empty() && points_.back().step >= report.step) points_.pop_back();

  if (entry == nullptr) {
    return Unknown(StrCat("no quantizer in the report of step ", report.step));
  }
  if (entry->status != ProbeStatus::kOk || !std::isfinite(entry->delta_nats.value_or(NAN))) {
    return Unknown(WhyNotMeasured(report, *entry));
  }

  const double delta = *entry->delta_nats;
  const double error_bar = entry->delta_stderr_nats.value_or(0);
  const std::optional<Baseline> baseline = MakeBaseline(std::isfinite(error_bar) ? error_bar : 0);
  const bool above = baseline.has_value() && delta > baseline->limit;
  points_.push_back({report.step, delta, report.lr_phase, above});

  Verdict verdict;
  verdict.summary = StrFormat("%s costs %.3g nats at step %d", Name(*entry), delta, report.step);
  if (!baseline) {
    verdict.state = VerdictState::kWarmingUp;
    verdict.summary += StrFormat("; %d of %d stable-phase snapshots for a baseline",
                                 FindCandidates().deltas.size(), kMinBaseline);
    return verdict;
  }

  const std::string base = StrFormat("its %s median %.3g (%d snapshots)",
                                     baseline->plateau ? "stable-phase" : "slow-decay",
                                     baseline->median, baseline->snapshots);
  if (!above) {
    verdict.state = VerdictState::kHealthy;
    verdict.summary += StrFormat(", within the scatter of %s; limit %.3g", base, baseline->limit);
    return verdict;
  }

  size_t onset = points_.size() - 1;
  while (onset > 0 && points_[onset - 1].above) --onset;
  verdict.state = onset + 1 < points_.size() ? VerdictState::kSpike : VerdictState::kUnclear;
  verdict.onset_step = points_[onset].step;
  verdict.severity_nats = delta - baseline->median;
  if (baseline->median > 0) {
    verdict.summary += StrFormat(", %.1fx %s", delta / baseline->median, base);
  } else {
    verdict.summary += StrFormat(", %.3g above %s", *verdict.severity_nats, base);
  }
  verdict.summary += StrFormat("; above it since step %d", *verdict.onset_step);
  if (report.decay_onset_step) {
    verdict.summary += StrFormat(", learning rate falling since step %d", *report.decay_onset_step);
  }
  return verdict;
}

}  // namespace ptqwatch::internal
