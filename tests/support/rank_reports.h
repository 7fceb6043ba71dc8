#ifndef PTQWATCH_TESTS_SUPPORT_RANK_REPORTS_H_
#define PTQWATCH_TESTS_SUPPORT_RANK_REPORTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/report.h"
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
  report.ranks.reset();
  report.parameter_digests.clear();
  report.predicted_end.reset();
  report.tasks.clear();
  return report;
}

inline std::string OwnerDetail(int64_t rank) {
  return "rank " + std::to_string(rank) + " measures it";
}

// What the curvature's rank knows of an error that another rank measures, and that rank does not.
inline void SplitPrediction(bool with_curvature, QuantizationReport& entry) {
  QuantizationReport part = entry;
  for (LayerQuantization& layer : part.layers) {
    LayerQuantization bare;
    bare.name = layer.name;
    bare.gradient_term_nats = layer.gradient_term_nats;
    bare.curvature_term_nats = layer.curvature_term_nats;
    layer = bare;
  }
  if (with_curvature) {
    part.loss_nats = part.delta_nats = part.delta_stderr_nats = std::nullopt;
    part.error_ratio = part.error_ratio_stderr = part.displacement_norm = std::nullopt;
    part.accuracy_ratio = part.accuracy_degradation_ratio = std::nullopt;
    part.accuracy_degradation_stderr = std::nullopt;
    part.prediction_detail.clear();
    part.tasks.clear();
    part.probe_tokens = 0;
    entry = std::move(part);
    return;
  }
  entry.predicted_delta_nats = entry.curvature_batch_delta_nats = std::nullopt;
  entry.curvature_batch_delta_stderr_nats = entry.gradient_term_nats = std::nullopt;
  entry.curvature_term_nats = entry.curvature_along_error = std::nullopt;
  entry.top_eigenvector_alignment = entry.beyond_quadratic_scale = std::nullopt;
  entry.loss_along.clear();
  entry.prediction_detail.clear();
  for (LayerQuantization& layer : entry.layers) {
    layer.gradient_term_nats = layer.curvature_term_nats = std::nullopt;
  }
}

/// The part of `report` that one rank writes: every `ranks`-th of its items is its own.
inline Report ShareOf(Report report, int64_t rank, int64_t ranks) {
  int64_t item = 0;
  const auto owner = [&] { return item++ % ranks; };
  const int64_t curvature = static_cast<int64_t>(report.quantization.size()) % ranks;
  for (QuantizationReport& entry : report.quantization) {
    const int64_t own = owner();
    if (own == rank && own != curvature) SplitPrediction(/*with_curvature=*/false, entry);
    if (own == rank) continue;
    if (rank == curvature) {
      SplitPrediction(/*with_curvature=*/true, entry);
    } else {
      QuantizationReport bare;
      bare.method = entry.method;
      bare.bits = entry.bits;
      bare.group_size = entry.group_size;
      bare.symmetric = entry.symmetric;
      bare.coverage_ratio = entry.coverage_ratio;
      bare.format = entry.format;
      bare.scale_rule = entry.scale_rule;
      entry = bare;
    }
    entry.status = ProbeStatus::kOtherRank;
    entry.status_detail = OwnerDetail(own);
  }
  const auto leave = [&](auto bare, auto& record) {
    const int64_t own = owner();
    if (own == rank) return;
    record = bare;
    record.status = ProbeStatus::kOtherRank;
    record.status_detail = OwnerDetail(own);
  };
  leave(CurvatureReport{}, *report.curvature);
  leave(AveragingReport{}, report.averaging.front());
  leave(MixedPrecisionReport{}, report.mixed_precision.front());
  leave(NoiseReport{}, *report.noise);
  if (rank != curvature) report.plan->curvature_sequences = 0;
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
