#ifndef PTQWATCH_REPORT_METRIC_SAMPLES_H_
#define PTQWATCH_REPORT_METRIC_SAMPLES_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptqwatch/metric_catalog.h"
#include "report/enum_names.h"

// Sample collectors of the metric catalogue, which return no samples for unmeasured or non-finite
// values, and its parts that have files of their own.

namespace ptqwatch::internal {

using Samples = std::vector<MetricSample>;
using Input = const MetricInput&;
using Labels = std::vector<std::string>;

Samples One(double value);
template <typename T>
Samples One(const std::optional<T>& value) {
  return value ? One(static_cast<double>(*value)) : Samples{};
}
Samples Count(int64_t value);

/// 0 or 1 for each value of an enum, so that an alert can compare with 0.
template <typename Enum>
Samples OneHot(Enum now) {
  Samples samples;
  for (const std::string_view name : NamesOf(now)) {
    samples.push_back({{std::string(name)}, name == ToString(now) ? 1.0 : 0.0});
  }
  return samples;
}

/// The quantizers to show. Labels cannot distinguish quantizers with equal keys: the first one is
/// shown, even if it was not measured.
std::vector<const QuantizationReport*> Shown(Input input);

/// Values of the labels method, bits and format of a record.
template <typename Record>
Labels QuantizerLabels(const Record& record) {
  QuantizerKey key = KeyOf(record);
  return {std::string(ToString(key.method)), std::to_string(key.bits), std::move(key.format)};
}

/// The values of a member that is an optional number.
template <auto kMember>
Samples PerQuantizer(Input input) {
  Samples samples;
  for (const QuantizationReport* entry : Shown(input)) {
    if (!(entry->*kMember)) continue;
    const auto value = static_cast<double>(*(entry->*kMember));
    if (std::isfinite(value)) samples.push_back({QuantizerLabels(*entry), value});
  }
  return samples;
}

Samples Coverage(Input input);
Samples Unseen(Input input);

Samples SliceProgress(Input input);

Samples PerLayer(Input input);

/// The newest report, or null if its full-precision loss was not measured.
const Report* Probed(Input input);

/// The curvature of the newest report, or null if it was not measured.
const CurvatureReport* Curved(Input input);

template <std::optional<double> CurvatureReport::*kMember>
Samples OfCurvature(Input input) {
  const CurvatureReport* curvature = Curved(input);
  return curvature ? One(curvature->*kMember) : Samples{};
}

Samples LayerTraces(Input input);

Samples Events(Input input);

Samples ProbeDurations(Input input);

Samples Snapshots(Input input);

Samples Drops(Input input);

/// A value of the status that is meaningful only after the first step.
Samples AfterFirstStep(Input input, double value);

// Rows of the catalogue.

/// About the verdict.
std::vector<MetricInfo> VerdictMetrics();
/// About accuracies, averages of snapshots and mixed precision.
std::vector<MetricInfo> WhatIfMetrics();
/// About shadow cooldowns, the predicted end of the planned decay.
std::vector<MetricInfo> PredictedEndMetrics();
/// About a run with several ranks: each rank's health, and whether their parameters are equal.
std::vector<MetricInfo> RankMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_METRIC_SAMPLES_H_
