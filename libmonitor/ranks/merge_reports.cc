#include "ranks/merge_reports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "report/pool_sets.h"

namespace ptqwatch::internal {
namespace {

constexpr ProbeStatus kOther = ProbeStatus::kOtherRank;

template <typename Record>
bool IsElsewhere(const Record& record) {
  return record.status == kOther;
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

void TakeQuantization(std::vector<QuantizationReport>& merged,
                      std::vector<QuantizationReport>& part) {
  if (merged.empty()) return merged.swap(part);
  for (size_t i = 0; i < part.size(); ++i) {
    const auto is_same = [&](const QuantizationReport& entry) { return SameEntry(entry, part[i]); };
    const auto entry = i < merged.size() && is_same(merged[i])
                           ? merged.begin() + static_cast<std::ptrdiff_t>(i)
                           : std::find_if(merged.begin(), merged.end(), is_same);
    if (entry != merged.end() && IsElsewhere(*entry)) std::swap(*entry, part[i]);
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

// Whether `part` has better eigenvalues. All ranks that measure a part of curvature find them;
// after the same snapshots they are equal.
bool FoundBetter(const CurvatureReport& part, const CurvatureReport& merged) {
  if (IsElsewhere(part) || IsElsewhere(merged)) return IsElsewhere(merged);
  const bool found = part.status == ProbeStatus::kOk;
  if (found != (merged.status == ProbeStatus::kOk)) return found;
  return part.edge_of_stability_status != kOther && merged.edge_of_stability_status == kOther;
}

// The status of a part of curvature whose rank has failed at all of its share.
void TakeFailure(const CurvatureReport& merged, const CurvatureReport& part,
                 std::optional<ProbeStatus>& status, std::string& detail) {
  if (status || part.status == merged.status) return;
  status = part.status;
  detail = part.status_detail;
}

void TakeTrace(CurvatureReport& merged, CurvatureReport& part) {
  if (merged.trace_status != kOther || part.trace_status == kOther) return;
  merged.trace = part.trace;
  merged.trace_stderr = part.trace_stderr;
  merged.trace_interval = part.trace_interval;
  merged.trace_probes = part.trace_probes;
  merged.trace_batch_stderr = part.trace_batch_stderr;
  merged.weighted_trace = part.weighted_trace;
  merged.weighted_trace_stderr = part.weighted_trace_stderr;
  merged.layers = std::move(part.layers);
  merged.trace_status = part.trace_status;
  merged.trace_detail = std::move(part.trace_detail);
  TakeFailure(merged, part, merged.trace_status, merged.trace_detail);
}

void TakeEdge(CurvatureReport& merged, CurvatureReport& part) {
  if (merged.edge_of_stability_status != kOther || part.edge_of_stability_status == kOther) return;
  merged.optimizer = part.optimizer;
  merged.edge_of_stability_ratio = part.edge_of_stability_ratio;
  merged.edge_of_stability_residual_ratio = part.edge_of_stability_residual_ratio;
  merged.edge_of_stability_status = part.edge_of_stability_status;
  merged.edge_of_stability_detail = std::move(part.edge_of_stability_detail);
  TakeFailure(merged, part, merged.edge_of_stability_status, merged.edge_of_stability_detail);
}

void TakeCurvature(std::optional<CurvatureReport>& merged, std::optional<CurvatureReport>& part) {
  if (!part) return;
  if (!merged) return merged.swap(part);
  const int64_t products = merged->hessian_products + part->hessian_products;
  if (FoundBetter(*part, *merged)) merged.swap(part);
  if (IsElsewhere(*part)) return;
  TakeTrace(*merged, *part);
  TakeEdge(*merged, *part);
  merged->hessian_products = products;
}

// Each set comes from the rank that measured it.
void TakeSets(std::optional<PooledLoss>& merged, std::optional<PooledLoss>& part) {
  if (!merged) merged.swap(part);
  if (!merged || !part) return;
  for (size_t i = 0; i < std::min(merged->sets.size(), part->sets.size()); ++i) {
    if (IsElsewhere(merged->sets[i])) std::swap(merged->sets[i], part->sets[i]);
  }
}

void TakePlan(std::optional<Plan>& merged, const std::optional<Plan>& part) {
  if (!part) return;
  if (!merged) merged.emplace();
  for (const auto member : {&Plan::probe_batches, &Plan::calibration_batches,
                            &Plan::curvature_sequences, &Plan::curvature_every, &Plan::merges}) {
    (*merged).*member = std::max((*merged).*member, (*part).*member);
  }
  merged->further_probe_sets += part->further_probe_sets;
}

void Take(Report& merged, Report& part) {
  TakeProbe(merged, part);
  TakeQuantization(merged.quantization, part.quantization);
  TakeCurvature(merged.curvature, part.curvature);
  TakeList(merged.averaging, part.averaging);
  TakeList(merged.mixed_precision, part.mixed_precision);
  TakeRecord(merged.noise, part.noise);
  TakeSets(merged.pooled, part.pooled);
  TakeRecord(merged.predicted_end, part.predicted_end);
  TakePlan(merged.plan, part.plan);
  for (const auto& [name, seconds] : part.cost) merged.cost[name] += seconds;
}

void DropElsewhere(CurvatureReport& curvature) {
  if (curvature.trace_status == kOther) {
    curvature.trace_status.reset();
    curvature.trace_detail.clear();
  }
  if (curvature.edge_of_stability_status == kOther) {
    curvature.edge_of_stability_status.reset();
    curvature.edge_of_stability_detail.clear();
  }
}

// Drops the parts that no rank had to measure, such as curvature at a snapshot at which it was not
// due. Keeps quantizers, since a series depends on their list.
void DropElsewhere(Report& merged) {
  std::erase_if(merged.averaging, IsElsewhere<AveragingReport>);
  std::erase_if(merged.mixed_precision, IsElsewhere<MixedPrecisionReport>);
  if (merged.curvature && IsElsewhere(*merged.curvature)) merged.curvature.reset();
  if (merged.curvature) DropElsewhere(*merged.curvature);
  if (merged.noise && IsElsewhere(*merged.noise)) merged.noise.reset();
  if (merged.predicted_end && IsElsewhere(*merged.predicted_end)) merged.predicted_end.reset();
}

}  // namespace

Report MergeReports(std::vector<Report> parts, bool complete) {
  Report merged = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) Take(merged, parts[i]);
  if (merged.pooled) PoolSets(*merged.pooled);
  if (complete) DropElsewhere(merged);
  merged.rank.reset();
  merged.sequence = 0;
  merged.parameter_digests = {};
  return merged;
}

}  // namespace ptqwatch::internal
