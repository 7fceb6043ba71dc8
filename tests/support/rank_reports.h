#ifndef PTQWATCH_TESTS_SUPPORT_RANK_REPORTS_H_
#define PTQWATCH_TESTS_SUPPORT_RANK_REPORTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/report.h"
#include "report/pool_sets.h"
#include "report/prediction_problem.h"
#include "support/sample_report.h"

namespace ptqwatch::testing {

/// The report of a trainer that measures everything at `step`, every 100 steps.
inline Report WholeReport(int64_t step) {
  Report report = SampleReport().report;
  report.run_id = "run";
  report.attempt = 1;
  report.sequence = step / 100;
  report.branch.reset();
  report.rank.reset();
  report.source.reset();
  report.probe_state_sequence = report.sequence - 1;
  report.step = step;
  report.snapshot_time_unix_seconds = 1.7e9 + static_cast<double>(step);
  report.rolled_back = false;
  report.lr_phase = LrPhase::kStable;
  report.decay_onset_step.reset();
  report.learning_rate = 0.01;
  report.snapshot_digest = "digest" + std::to_string(step);
  report.quantization.clear();
  for (const auto& [method, bits] : {std::pair(QuantizationMethod::kGptq, 3),
                                     {QuantizationMethod::kGptq, 4},
                                     {QuantizationMethod::kRtn, 3},
                                     {QuantizationMethod::kRtn, 4}}) {
    QuantizationReport& entry =
        report.quantization.emplace_back(SampleQuantization(method, bits, 0.4 / bits));
    // A prediction of the curvature's needs no second one from losses alone.
    entry.critical_sharpness.reset();
    entry.prediction_detail = internal::PredictionProblem(entry);
  }
  internal::PoolSets(*report.pooled);
  report.ranks.reset();
  report.curvature->trace_status.reset();
  report.curvature->trace_detail.clear();
  report.curvature->edge_of_stability_status.reset();
  report.parameter_digests.clear();
  report.predicted_end.reset();
  report.tasks.clear();
  return report;
}

inline std::string OwnerDetail(int64_t rank) { return "left to rank " + std::to_string(rank); }

// Leaves the rank's own parts of curvature, with `own_quantizers` of `quantizers`. All ranks that
// have one have found the eigenvalues.
inline void SplitCurvature(bool edge, bool trace, int64_t own_quantizers, int64_t quantizers,
                           CurvatureReport& curvature) {
  const int64_t for_trace = curvature.trace_probes;
  const int64_t for_edge = curvature.hessian_products - for_trace - quantizers;
  curvature.hessian_products = own_quantizers + (trace ? for_trace : 0) + (edge ? for_edge : 0);
  if (!trace) {
    curvature.trace = curvature.trace_stderr = curvature.trace_interval = std::nullopt;
    curvature.trace_batch_stderr = std::nullopt;
    curvature.weighted_trace = curvature.weighted_trace_stderr = std::nullopt;
    curvature.trace_probes = 0;
    curvature.layers.clear();
  }
  if (!edge) {
    curvature.optimizer.reset();
    curvature.edge_of_stability_ratio = std::nullopt;
    curvature.edge_of_stability_residual_ratio = std::nullopt;
    curvature.edge_of_stability_detail.clear();
  }
}

/// The part of `report` that one rank writes: every `ranks`-th of its items is its own.
inline Report ShareOf(Report report, int64_t rank, int64_t ranks) {
  int64_t item = 0;
  const auto owner = [&] { return item++ % ranks; };
  const auto quantizers = static_cast<int64_t>(report.quantization.size());
  int64_t own_quantizers = 0;
  for (QuantizationReport& entry : report.quantization) {
    const int64_t own = owner();
    if (own == rank) {
      ++own_quantizers;
      continue;
    }
    QuantizationReport bare;
    bare.method = entry.method;
    bare.bits = entry.bits;
    bare.group_size = entry.group_size;
    bare.symmetric = entry.symmetric;
    bare.coverage_ratio = entry.coverage_ratio;
    bare.format = entry.format;
    bare.scale_rule = entry.scale_rule;
    entry = bare;
    entry.status = ProbeStatus::kOtherRank;
    entry.status_detail = OwnerDetail(own);
  }
  const int64_t edge = owner();
  const int64_t trace = owner();
  const bool curvature = rank == edge || rank == trace || own_quantizers > 0;
  if (curvature) {
    SplitCurvature(rank == edge, rank == trace, own_quantizers, quantizers, *report.curvature);
    if (rank != trace) {
      report.curvature->trace_status = ProbeStatus::kOtherRank;
      report.curvature->trace_detail = OwnerDetail(trace);
    }
    if (rank != edge) {
      report.curvature->edge_of_stability_status = ProbeStatus::kOtherRank;
      report.curvature->edge_of_stability_detail = OwnerDetail(edge);
    }
  } else {
    report.curvature.emplace().status = ProbeStatus::kOtherRank;
    report.curvature->status_detail = OwnerDetail(edge);
  }
  const auto leave = [&](auto bare, auto& record) {
    const int64_t own = owner();
    if (own == rank) return;
    record = bare;
    record.status = ProbeStatus::kOtherRank;
    record.status_detail = OwnerDetail(own);
  };
  leave(AveragingReport{}, report.averaging.front());
  leave(MixedPrecisionReport{}, report.mixed_precision.front());
  leave(NoiseReport{}, *report.noise);
  report.plan->further_probe_sets = 0;
  for (ProbeSet& set : report.pooled->sets) {
    const int64_t own = owner();
    if (own == rank && set.set > 0) ++report.plan->further_probe_sets;
    if (own == rank) continue;
    set = {.set = set.set, .status = ProbeStatus::kOtherRank, .status_detail = OwnerDetail(own)};
  }
  internal::PoolSets(*report.pooled);
  if (!curvature) report.plan->curvature_sequences = 0;
  if (rank != 0) {
    report.cost.clear();
    report.probe_tokens /= 2;  // sure enough earlier
    report.probe_loss_nats = *report.probe_loss_nats + 0.001;
  }
  report.rank = rank;
  report.ranks = ranks;
  report.parameter_digests = {{"embedding", "1"}, {"head", "2"}};
  return report;
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_RANK_REPORTS_H_
