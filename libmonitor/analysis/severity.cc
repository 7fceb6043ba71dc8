#include "analysis/severity.h"

#include <algorithm>
#include <cmath>

#include "absl/types/span.h"

namespace ptqwatch::internal {
namespace {

constexpr double kNormal95 = 1.96;
// A baseline below this share of the loss is mostly measurement error.
constexpr double kLeastErrorRatio = 1e-3;

// A gain is counted from the mean loss of this many snapshots before a change.
constexpr size_t kBefore = 3;

std::optional<double> MeanLoss(const History& history, absl::Span<const size_t> places) {
  double sum = 0;
  int count = 0;
  for (const size_t i : places) {
    if (const auto loss = history.points()[i].loss_nats) {
      sum += *loss;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

double LossOf(const Point& point) { return point.loss_nats.value_or(1.0); }

// Converts the baseline's logarithm at `point` to nats, or to the unit of the series.
double Expected(const Baseline& baseline, const Point& point, SeriesKind kind, double change = 0) {
  const double logarithm = baseline.At(point.log_step) + change;
  if (kind != SeriesKind::kError) return std::exp(logarithm);
  return std::max(ErrorRatio(logarithm), 0.0) * LossOf(point);
}

}  // namespace

std::optional<Severity> SeverityOf(const History& history, const Change& change,
                                   const std::string& name) {
  if (!change.errors) return std::nullopt;
  const std::vector<double> level(change.tested.size(), 1.0);
  const auto estimate = change.errors->EstimateSeries(name, change.tested, level);
  if (!estimate) return std::nullopt;
  const Baseline& baseline = change.errors->series().at(name);
  const auto mean = [&](double size) {
    double sum = 0;
    for (const size_t i : change.tested) {
      const Point& point = history.points()[i];
      sum += Expected(baseline, point, SeriesKind::kError, size) -
             Expected(baseline, point, SeriesKind::kError);
    }
    return sum / static_cast<double>(change.tested.size());
  };
  const double margin = kNormal95 * estimate->stderr_value;
  Severity severity;
  severity.nats = mean(estimate->size);
  severity.low_nats = mean(estimate->size - margin);
  severity.high_nats = mean(estimate->size + margin);
  const Point& newest = history.points()[change.tested.back()];
  severity.expected_nats = Expected(baseline, newest, SeriesKind::kError);
  if (severity.expected_nats > kLeastErrorRatio * LossOf(newest)) {
    const auto ratio = [&](double size) {
      return Expected(baseline, newest, SeriesKind::kError, size) / severity.expected_nats;
    };
    severity.ratio = ratio(estimate->size);
    severity.low_ratio = ratio(estimate->size - margin);
    severity.high_ratio = ratio(estimate->size + margin);
  }
  return severity;
}

double LossGain(const History& history, const Change& change) {
  const absl::Span<const size_t> reference = change.reference;
  const auto before =
      MeanLoss(history, reference.subspan(reference.size() - std::min(kBefore, reference.size())));
  const auto since = MeanLoss(history, change.tested);
  return before && since ? *before - *since : 0;
}

std::vector<Evidence> EvidenceOf(const History& history, const Change& change,
                                 const Change& since) {
  std::vector<Evidence> evidence;
  const auto add_kind = [&](const char* name, auto kind) {
    if (!(since.*kind)) return;
    Evidence& together = evidence.emplace_back();
    together.series = name;
    together.ratio = std::exp((since.*kind)->size);
    if (change.*kind) together.sigmas = (change.*kind)->sigmas;
  };
  add_kind("quantization", &Change::error);
  add_kind("curvature", &Change::curvature);
  const auto displacement =
      Composite::Fit(history.points(), since.reference, SeriesKind::kDisplacement);
  const std::vector<double> level(since.tested.size(), 1.0);
  const Point& newest = history.points()[since.tested.back()];
  const auto add = [&](const std::optional<Composite>& composite, SeriesKind kind) {
    if (!composite) return;
    for (const auto& [name, baseline] : composite->series()) {
      const auto estimate = composite->EstimateSeries(name, since.tested, level);
      if (!estimate) continue;
      Evidence& one = evidence.emplace_back();
      one.series = name;
      if (const auto value = newest.series.find(name); value != newest.series.end()) {
        one.value = value->second.value;
      }
      one.expected = Expected(baseline, newest, kind);
      if (kind != SeriesKind::kError || *one.expected > kLeastErrorRatio * LossOf(newest)) {
        one.ratio = Expected(baseline, newest, kind, estimate->size) / *one.expected;
      }
      one.sigmas = estimate->sigmas;
    }
  };
  add(since.errors, SeriesKind::kError);
  add(since.curvatures, SeriesKind::kCurvature);
  add(displacement, SeriesKind::kDisplacement);
  return evidence;
}

}  // namespace ptqwatch::internal
