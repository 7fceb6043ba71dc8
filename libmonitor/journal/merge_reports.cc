#include "journal/merge_reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "report/prediction_problem.h"

namespace ptqwatch::internal {
namespace {

template <typename Record>
bool IsElsewhere(const Record& record) {
  return record.status == ProbeStatus::kOtherRank;
}

template <typename Record>
bool AllElsewhere(const std::vector<Record>& records) {
  return std::all_of(records.begin(), records.end(), IsElsewhere<Record>);
}

// Comparisons stop once they are sure enough, so the ranks use different numbers of tokens.
void TakeProbe(Report& merged, Report& part) {
  const bool measured = part.probe_status == ProbeStatus::kOk;
  if (measured < (merged.probe_status == ProbeStatus::kOk)) return;
  if (measured == (merged.probe_status == ProbeStatus::kOk) &&
      part.probe_tokens <= merged.probe_tokens) {
    return;
  }
  merged.probe_status = part.probe_status;
  merged.probe_status_detail = std::move(part.probe_status_detail);
  merged.probe_loss_nats = part.probe_loss_nats;
  merged.probe_loss_stderr_nats = part.probe_loss_stderr_nats;
  merged.probe_tokens = part.probe_tokens;
  merged.probe_examples = part.probe_examples;
  merged.probe_accuracy_ratio = part.probe_accuracy_ratio;
  merged.probe_accuracy_stderr = part.probe_accuracy_stderr;
}

bool SameEntry(const QuantizationReport& one, const QuantizationReport& other) {
  return SameQuantizer(one, other) && one.group_size == other.group_size &&
         one.symmetric == other.symmetric;
}

// The rank that measures curvature also measures it along the errors of the other ranks'
// quantizers, and leaves the result in their entries.
void TakePrediction(QuantizationReport& entry, QuantizationReport& part) {
  if (entry.status != ProbeStatus::kOk || !part.predicted_delta_nats) return;
  entry.predicted_delta_nats = part.predicted_delta_nats;
  entry.curvature_batch_delta_nats = part.curvature_batch_delta_nats;
  entry.curvature_batch_delta_stderr_nats = part.curvature_batch_delta_stderr_nats;
  entry.gradient_term_nats = part.gradient_term_nats;
  entry.curvature_term_nats = part.curvature_term_nats;
  entry.curvature_along_error = part.curvature_along_error;
  entry.top_eigenvector_alignment = part.top_eigenvector_alignment;
  entry.loss_along = std::move(part.loss_along);
  entry.beyond_quadratic_scale = part.beyond_quadratic_scale;
  entry.critical_sharpness.reset();
  for (size_t i = 0; i < part.layers.size(); ++i) {
    const LayerQuantization& terms = part.layers[i];
    const auto is_named = [&](const LayerQuantization& layer) { return layer.name == terms.name; };
    const auto layer = i < entry.layers.size() && is_named(entry.layers[i])
                           ? entry.layers.begin() + static_cast<std::ptrdiff_t>(i)
                           : std::find_if(entry.layers.begin(), entry.layers.end(), is_named);
    if (layer == entry.layers.end()) continue;
    layer->gradient_term_nats = terms.gradient_term_nats;
    layer->curvature_term_nats = terms.curvature_term_nats;
  }
  // It depends on the loss change too, which the other rank measured.
  entry.prediction_detail = PredictionProblem(entry);
}

void TakeEntry(QuantizationReport& entry, QuantizationReport& part) {
  if (IsElsewhere(entry)) {
    std::swap(entry, part);
    if (IsElsewhere(entry) && part.predicted_delta_nats) std::swap(entry, part);
  }
  if (IsElsewhere(part) && !IsElsewhere(entry)) TakePrediction(entry, part);
}

void TakeQuantization(std::vector<QuantizationReport>& merged,
                      std::vector<QuantizationReport>& part) {
  if (merged.empty()) return merged.swap(part);
  for (size_t i = 0; i < part.size(); ++i) {
    const auto is_same = [&](const QuantizationReport& entry) { return SameEntry(entry, part[i]); };
    const auto entry = i < merged.size() && is_same(merged[i])
                           ? merged.begin() + static_cast<std::ptrdiff_t>(i)
                           : std::find_if(merged.begin(), merged.end(), is_same);
    if (entry != merged.end()) TakeEntry(*entry, part[i]);
  }
}

// Dealt as a whole: one rank has all entries.
template <typename Record>
void TakeList(std::vector<Record>& merged, std::vector<Record>& part) {
  if (!part.empty() && AllElsewhere(merged)) {
    if (merged.empty() || !AllElsewhere(part)) merged.swap(part);
  }
}

template <typename Record>
void TakeRecord(std::optional<Record>& merged, std::optional<Record>& part) {
  if (part && (!merged || IsElsewhere(*merged))) merged.swap(part);
}

void TakePlan(std::optional<Plan>& merged, const std::optional<Plan>& part) {
  if (!part) return;
  if (!merged) merged.emplace();
  for (const auto member : {&Plan::probe_batches, &Plan::calibration_batches,
                            &Plan::curvature_sequences, &Plan::curvature_every, &Plan::merges}) {
    (*merged).*member = std::max((*merged).*member, (*part).*member);
  }
}

void Take(Report& merged, Report& part) {
  TakeProbe(merged, part);
  TakeQuantization(merged.quantization, part.quantization);
  TakeRecord(merged.curvature, part.curvature);
  TakeList(merged.averaging, part.averaging);
  TakeList(merged.mixed_precision, part.mixed_precision);
  TakeRecord(merged.noise, part.noise);
  TakeRecord(merged.predicted_end, part.predicted_end);
  TakePlan(merged.plan, part.plan);
  for (const auto& [name, seconds] : part.cost) merged.cost[name] += seconds;
}

// A prediction without the measurement that it is about.
void DropPrediction(QuantizationReport& entry) {
  QuantizationReport bare;
  bare.method = entry.method;
  bare.bits = entry.bits;
  bare.group_size = entry.group_size;
  bare.symmetric = entry.symmetric;
  bare.status = entry.status;
  bare.status_detail = std::move(entry.status_detail);
  bare.coverage_ratio = entry.coverage_ratio;
  bare.format = std::move(entry.format);
  bare.scale_rule = std::move(entry.scale_rule);
  entry = std::move(bare);
}

// Drops the parts that no rank had to measure, such as curvature at a snapshot at which it was not
// due. Keeps quantizers, since a series depends on their list.
void DropElsewhere(Report& merged) {
  std::erase_if(merged.averaging, IsElsewhere<AveragingReport>);
  std::erase_if(merged.mixed_precision, IsElsewhere<MixedPrecisionReport>);
  if (merged.curvature && IsElsewhere(*merged.curvature)) merged.curvature.reset();
  if (merged.noise && IsElsewhere(*merged.noise)) merged.noise.reset();
  if (merged.predicted_end && IsElsewhere(*merged.predicted_end)) merged.predicted_end.reset();
}

}  // namespace

Report MergeReports(std::vector<Report> parts, bool complete) {
  Report merged = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) Take(merged, parts[i]);
  for (QuantizationReport& entry : merged.quantization) {
    if (IsElsewhere(entry)) DropPrediction(entry);
  }
  if (complete) DropElsewhere(merged);
  merged.rank.reset();
  merged.sequence = 0;
  merged.parameter_digests = {};
  return merged;
}

}  // namespace ptqwatch::internal
