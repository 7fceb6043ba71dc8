#include "analysis/analyzer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "analysis/advice.h"
#include "analysis/convergence.h"
#include "analysis/outlook.h"
#include "analysis/severity.h"
#include "base/strings.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

// Shares of the evidence needed for an alarm that keep an alarm on and that make a verdict unclear.
constexpr double kKeptShare = 0.6;
constexpr double kUnclearShare = 0.8;
// Least evidence from the error itself, so that curvature alone raises no alarm.
constexpr double kLeastErrorSigmas = 1.0;
// With fewer plateau snapshots than this, an alarm needs more evidence: up to two sigmas more.
constexpr double kSoundReference = 10;
constexpr double kShortReference = 2;
// In a decay, where a rise is expected, this replaces kConfirmedSigmas. Alternatively, this much
// evidence of curvature confirms a snapshot.
constexpr double kConfirmedInDecay = 0.5;
constexpr double kConfirmingCurvature = 3;
// Lost share of the learning rate from which the threshold of a decay applies in full.
constexpr double kDecayBegun = 0.1;
// Evidence of curvature that makes a verdict unclear if the error shows nothing.
constexpr double kCurvatureAlone = 4.0;
// Number of newest snapshots that decide whether an alarm is over.
constexpr size_t kRecent = 3;
constexpr double kRecoveredSigmas = 1.5;
// Thresholds of a drift: the slope over its standard error, to begin and to continue, and the
// growth over the window.
constexpr double kDriftSigmas = 4.0;
constexpr double kDriftKept = 2.5;
constexpr double kDriftGrowth = 1.15;
// A drift need not follow the baseline's power law, so a spike during one needs this many sigmas
// more.
constexpr double kDriftDoubt = 2;
// Share of the matrix weights above which a verdict says that they are not measured.
constexpr double kMostUnseen = 0.2;
constexpr size_t kDriftSnapshots = 10;  // with fewer, growth is the end of the warm-up

// " at step 8"; empty for a checkpoint whose step is unknown.
std::string AtStep(int64_t step) { return step < 0 ? "" : StrCat(" at step ", step); }

std::string WhyNoQuantizer(const Report& report) {
  if (report.probe_status == ProbeStatus::kOk) {
    return StrCat("no quantizer in the report", AtStep(report.step));
  }
  std::string text =
      StrCat("nothing was measured", AtStep(report.step), ": ", ToString(report.probe_status));
  if (!report.probe_status_detail.empty()) text += StrCat(" (", report.probe_status_detail, ")");
  return text;
}

std::string WhyNotMeasured(const Report& report, const QuantizationReport& entry) {
  const std::string_view reason =
      entry.status == ProbeStatus::kOk ? "no finite loss increase" : ToString(entry.status);
  std::string text =
      StrCat(LabelOf(KeyOf(entry)), " was not measured", AtStep(report.step), ": ", reason);
  if (!entry.status_detail.empty()) text += StrCat(" (", entry.status_detail, ")");
  return text;
}

std::string WhyStill(int64_t since, const Report& report) {
  return StrFormat(
      "no bit of the parameters has changed from step %d to step %d, at a learning rate of %g: was "
      "the model replaced after Monitor::Create? The monitor reads the tensors it was created "
      "with; "
      "create it with the model that is trained",
      since, report.step, report.learning_rate.value_or(0));
}

}  // namespace

/// State of the series at the newest snapshot.
struct Analyzer::Finding {
  size_t newest = 0;
  bool decaying = false;
  bool blind = false;            ///< the learning rate is unknown, so a decay may go unseen
  std::optional<Change> change;  ///< evidence for an alarm
  std::optional<Change> since;   ///< the same change as a jump at the onset
  std::optional<Severity> severity;
  double needed = 0;      ///< evidence needed for an alarm
  bool outgrown = false;  ///< the loss fell by more than the cost of quantization rose
  VerdictState before = VerdictState::kUnknown;
  std::optional<int64_t> onset_before;
  std::string series;  ///< of the watched quantizer
};

// "3.3 sigma (curvature 4.1, quantization 2.0; alarm from 2.2)", the stronger first.
std::string Analyzer::Reason(const Finding& finding) {
  const Change& change = *finding.change;
  std::string kinds = StrFormat("quantization %.1f", change.error_sigmas());
  if (change.curvature) {
    const std::string curvature = StrFormat("curvature %.1f", change.curvature_sigmas());
    kinds = change.curvature_sigmas() > change.error_sigmas() ? StrCat(curvature, ", ", kinds)
                                                              : StrCat(kinds, ", ", curvature);
  }
  const bool on = IsAlarm(finding.before);
  return StrFormat("%.1f sigma (%s; %s %.1f)", change.sigmas, kinds,
                   on ? "ends below" : "alarm from", (on ? kKeptShare : 1) * finding.needed);
}

double Analyzer::Needed(double decayed, size_t reference) const {
  const double share = std::min(decayed / kDecayBegun, 1.0);
  const double short_of = 1 - std::min(static_cast<double>(reference) / kSoundReference, 1.0);
  const double plateau = options_.plateau_sigmas + kShortReference * short_of;
  return plateau + share * (options_.decay_sigmas - plateau);
}

Analyzer::Finding Analyzer::Find() const {
  const std::vector<Point>& points = history_.points();
  Finding finding;
  finding.newest = points.size() - 1;
  if (points.size() > 1) {
    finding.before = points[points.size() - 2].state;
    finding.onset_before = points[points.size() - 2].onset_step;
  }
  finding.blind = std::isnan(points.back().learning_rate) && !points.back().falling;
  const double decayed = points.back().decayed;
  finding.decaying = decayed > history_.PlateauLimit(points.size());
  if (finding.decaying) {
    finding.change = ChangeInDecay(history_);
  } else if (finding.onset_before) {
    // After an alarm, compare the newest snapshots with the plateau before it.
    size_t first = points.size() - std::min(points.size(), kRecent);
    while (first < points.size() && points[first].step < *finding.onset_before) ++first;
    std::vector<size_t> recent;
    for (size_t i = first; i < points.size(); ++i) recent.push_back(i);
    std::vector<size_t> reference = history_.Plateau(points.size());
    if (reference.size() >= Composite::kMinReference) {
      while (!reference.empty() && reference.back() >= first) reference.pop_back();
    }
    if (reference.size() >= Composite::kMinReference && !recent.empty()) {
      finding.change = JumpSince(history_, std::move(reference), std::move(recent));
    }
  } else {
    finding.change = Jump(history_);
  }
  if (finding.change && !finding.change->error) finding.change.reset();
  if (finding.change) {
    finding.needed = Needed(finding.decaying ? decayed : 0, finding.change->reference.size());
    if (!finding.decaying && finding.before == VerdictState::kDrifting) {
      finding.needed += kDriftDoubt;
    }
  }
  return finding;
}

bool Analyzer::Drifts(const Finding& finding) const {
  const std::vector<size_t> plateau = history_.Plateau(history_.points().size());
  if (plateau.size() < kDriftSnapshots) return false;
  const auto errors = Composite::Fit(history_.points(), plateau, SeriesKind::kError);
  if (!errors) return false;
  const double growth = errors->baseline().slope() * (history_.points()[plateau.back()].log_step -
                                                      history_.points()[plateau.front()].log_step);
  const bool drifted = finding.before == VerdictState::kDrifting;
  return errors->baseline().slope() >=
             (drifted ? kDriftKept : kDriftSigmas) * errors->baseline().slope_stderr() &&
         growth >= std::log(kDriftGrowth);
}

VerdictState Analyzer::StateOf(const Finding& finding) const {
  const Change& change = *finding.change;
  const double ratio =
      std::exp(finding.since && finding.since->error ? finding.since->error->size : 0.0);
  const bool was_alarm = IsAlarm(finding.before) || finding.before == VerdictState::kRecovering;
  const double least_ratio =
      finding.decaying || was_alarm ? options_.decay_ratio : options_.plateau_ratio;
  const bool matters =
      finding.severity && finding.severity->nats >= options_.floor_nats && ratio >= least_ratio;
  const bool in_error = change.error_sigmas() >= kLeastErrorSigmas;
  const bool confirmed = finding.decaying ? change.confirmed_sigmas >= kConfirmedInDecay ||
                                                change.curvature_sigmas() >= kConfirmingCurvature
                                          : change.confirmed_sigmas >= kConfirmedSigmas;
  const double needed = IsAlarm(finding.before) ? kKeptShare * finding.needed : finding.needed;
  if (!finding.decaying && !was_alarm && matters && finding.outgrown &&
      change.sigmas >= kUnclearShare * needed) {
    return VerdictState::kDrifting;
  }
  if (change.sigmas >= needed && in_error && matters && confirmed) {
    if (finding.decaying) return VerdictState::kDecayDegradation;
    if (finding.blind) return VerdictState::kUnclear;
    return finding.onset_before && finding.before != VerdictState::kSpike &&
                   finding.before != VerdictState::kUnknown
               ? VerdictState::kRecovering
               : VerdictState::kSpike;
  }
  if (IsAlarm(finding.before) ||
      (was_alarm && change.error_sigmas() >= kRecoveredSigmas && matters)) {
    return VerdictState::kRecovering;
  }
  if (matters && change.sigmas >= kUnclearShare * finding.needed) return VerdictState::kUnclear;
  if (change.curvature_sigmas() >= kCurvatureAlone && !in_error) return VerdictState::kUnclear;
  if (!finding.decaying && Drifts(finding)) return VerdictState::kDrifting;
  return VerdictState::kHealthy;
}

void Analyzer::KeepState(size_t index) {
  if (index == 0) return;
  history_.at(index).state = history_.points()[index - 1].state;
  history_.at(index).onset_step = history_.points()[index - 1].onset_step;
}

std::optional<int64_t> Analyzer::LossConvergedBefore(size_t added) const {
  const std::vector<Point>& points = history_.points();
  // A report that came late lies before the one that was judged last.
  if (added + 1 < points.size()) return points.back().loss_converged_step;
  return added == 0 ? std::nullopt : points[added - 1].loss_converged_step;
}

Verdict Analyzer::Add(const Report& report) {
  Verdict verdict = Judge(report);
  if (report.unseen && report.unseen->ratio > kMostUnseen) {
    verdict.summary +=
        StrFormat(". %.0f%% of the matrix weights are not measured; the largest is '%s': %s",
                  100 * report.unseen->ratio, report.unseen->largest, report.unseen->reason);
  }
  return verdict;
}

Verdict Analyzer::Judge(const Report& report) {
  const size_t added = history_.Add(report);
  still_since_ = history_.StillSince();
  if (still_since_) history_.ForgetMeasuredSince(*still_since_);
  Verdict verdict;
  verdict.decay_onset_step = report.decay_onset_step;
  const std::optional<int64_t> converged_before = LossConvergedBefore(added);
  verdict.loss_converged_step = LossConvergedStep(history_, converged_before);
  history_.at(history_.points().size() - 1).loss_converged_step = verdict.loss_converged_step;
  const std::optional<size_t> watched = WatchedQuantizer(report.quantization);
  if (!watched) {
    verdict.summary = WhyNoQuantizer(report);
    KeepState(added);
    return verdict;
  }
  const QuantizationReport* entry = &report.quantization[*watched];
  verdict.method = entry->method;
  verdict.bits = entry->bits;
  verdict.format = entry->format;
  Point& point = history_.at(added);
  if (still_since_ && report.step > *still_since_) {
    verdict.summary = WhyStill(*still_since_, report);
    KeepState(added);
    return verdict;
  }
  const std::string series = StrCat("loss_delta_", ShortName(KeyOf(*entry)));
  if (!point.series.contains(series)) {
    verdict.summary = WhyNotMeasured(report, *entry);
    KeepState(added);
    return verdict;
  }
  Finding finding = Find();
  finding.series = series;
  if (!finding.change) {
    verdict.state = VerdictState::kWarmingUp;
  } else {
    finding.since = finding.decaying ? HigherLevel(*finding.change) : *finding.change;
    finding.severity = SeverityOf(history_, *finding.since, series);
    finding.outgrown =
        finding.severity && LossGain(history_, *finding.since) > finding.severity->nats;
    verdict.state = StateOf(finding);
  }
  Describe(finding, verdict);
  if (converged_before && verdict.loss_converged_step != converged_before) {
    verdict.summary += StrFormat(". The loss improves again after step %d", *converged_before);
  }
  if (finding.change && finding.decaying) {
    std::vector<size_t> decay(history_.points().size() - finding.change->tested.front());
    std::iota(decay.begin(), decay.end(), finding.change->tested.front());
    verdict.outlook = OutlookOf(history_, finding.change->reference, decay);
  }
  // If this report came late, the verdict is about a newer one.
  if (added == finding.newest) {
    if (finding.change && entry->beyond_quadratic_scale) {
      Evidence& beyond = verdict.evidence.emplace_back();
      beyond.series = StrCat("beyond_quadratic_", ShortName(KeyOf(*entry)));
      beyond.value = entry->beyond_quadratic_scale;
    }
    verdict.advice = AdviceFor(report, verdict);
  }
  Point& newest = history_.at(finding.newest);
  newest.state = verdict.state;
  newest.onset_step = verdict.onset_step;
  return verdict;
}

void Analyzer::SetOnset(const Finding& finding, Verdict& verdict) const {
  const std::vector<Point>& points = history_.points();
  if (!finding.decaying) {
    verdict.onset_step = finding.onset_before.value_or(points[finding.since->tested.front()].step);
    return;
  }
  const Onset onset = OnsetInDecay(history_, *finding.change);
  verdict.onset_step = points[onset.first].step;
  // The onset of an alarm moves to no later step. One from before the decay is another alarm's.
  const double limit = history_.PlateauLimit(points.size());
  const auto begun = std::find_if(finding.change->tested.begin(), finding.change->tested.end(),
                                  [&](size_t i) { return points[i].decayed > limit; });
  if (finding.onset_before >= points[*begun].step) {
    verdict.onset_step = std::min(*verdict.onset_step, *finding.onset_before);
  }
  verdict.onset_low_step = std::min(points[onset.earliest].step, *verdict.onset_step);
  verdict.onset_high_step = points[onset.latest].step;
}

void Analyzer::Describe(const Finding& finding, Verdict& verdict) const {
  const Point& newest = history_.points()[finding.newest];
  const auto found = newest.series.find(finding.series);
  const std::string name = LabelOf(KeyOf(verdict));
  verdict.summary =
      found == newest.series.end()
          ? StrCat(name, AtStep(newest.step))
          : StrFormat("%s costs %.3g nats%s", name, found->second.value, AtStep(newest.step));
  if (!finding.change) {
    verdict.summary +=
        StrFormat("; %d of %d snapshots for a baseline",
                  history_.Plateau(history_.points().size()).size(), Composite::kMinReference + 1);
    return;
  }
  verdict.sigmas = finding.change->sigmas;
  verdict.alarm_sigmas = finding.needed;
  verdict.evidence = EvidenceOf(history_, *finding.change, *finding.since);
  const bool alarmed = IsAlarm(verdict.state) || verdict.state == VerdictState::kRecovering;
  if (alarmed) SetOnset(finding, verdict);
  std::string beyond;
  if (finding.severity) {
    const Severity& severity = *finding.severity;
    verdict.severity_nats = severity.nats;
    verdict.severity_low_nats = severity.low_nats;
    verdict.severity_high_nats = severity.high_nats;
    if (severity.ratio) {
      verdict.severity_ratio = severity.ratio;
      verdict.severity_low_ratio = severity.low_ratio;
      verdict.severity_high_ratio = severity.high_ratio;
      beyond = StrFormat("%.2fx its baseline", *severity.ratio);
    } else {
      beyond = StrFormat("%.3g above baseline", severity.nats);
    }
  }
  switch (verdict.state) {
    case VerdictState::kDecayDegradation:
      verdict.summary +=
          StrFormat(", %s, rising since step %d: %s", beyond, *verdict.onset_step, Reason(finding));
      break;
    case VerdictState::kSpike:
      verdict.summary += StrFormat(", %s since step %d without decay: %s", beyond,
                                   *verdict.onset_step, Reason(finding));
      break;
    case VerdictState::kRecovering:
      verdict.summary += StrFormat(", %s, and coming down", beyond);
      break;
    case VerdictState::kDrifting:
      verdict.summary += finding.outgrown
                             ? StrFormat(", %s, while the loss itself falls by more", beyond)
                         : finding.blind ? ", growing slowly"
                                         : ", growing slowly while the learning rate is high";
      break;
    case VerdictState::kUnclear:
      if (finding.blind && finding.change->sigmas >= finding.needed) {
        verdict.summary +=
            StrFormat(", %s; the learning rate is unknown, so its decay may be the reason", beyond);
        break;
      }
      verdict.summary += StrFormat(
          ", %s: %s, %s", beyond, Reason(finding),
          finding.change->sigmas < finding.needed ? "too little for an alarm" : "not confirmed");
      break;
    default:
      verdict.summary += StrFormat(", as the plateau predicts (%.3g)",
                                   finding.severity ? finding.severity->expected_nats : 0.0);
  }
}

}  // namespace ptqwatch::internal
