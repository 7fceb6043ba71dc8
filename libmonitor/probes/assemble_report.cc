#include "probes/assemble_report.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "probes/prediction_check.h"
#include "report/layer_groups.h"

namespace ptqwatch::internal {
namespace {

void AddTo(Report& report, const QuantizationResult& result) {
  report.probe_status = result.status;
  report.probe_status_detail = result.detail;
  report.probe_loss_nats = result.loss_nats;
  report.probe_loss_stderr_nats = result.loss_stderr_nats;
  report.probe_tokens = result.tokens;
  report.probe_examples = result.examples;
  report.probe_accuracy_ratio = result.accuracy_ratio;
  report.probe_accuracy_stderr = result.accuracy_stderr;
  report.calibration_mode = result.calibration_mode;
  report.quantization = result.quantizers;
  report.skipped_layers = GroupSkipped(result.skipped_layers);
  report.unseen = result.unseen;
}

void AddTo(QuantizationReport& report, const ErrorCurvature& error) {
  report.predicted_delta_nats = error.predicted_delta_nats;
  report.curvature_batch_delta_nats = error.delta_nats;
  report.curvature_batch_delta_stderr_nats = error.delta_stderr_nats;
  report.prediction_detail = PredictionProblem(error, report);
  report.gradient_term_nats = error.gradient_term_nats;
  report.curvature_term_nats = error.curvature_term_nats;
  report.curvature_along_error = error.curvature_along_error;
  report.top_eigenvector_alignment = error.top_eigenvector_alignment;
  report.loss_along = error.loss_along;
  report.beyond_quadratic_scale = BeyondQuadratic(error.loss_along);
  report.critical_sharpness.reset();
  std::unordered_map<std::string_view, LayerQuantization*> rows;
  for (LayerQuantization& row : report.layers) {
    row.gradient_term_nats.reset();
    row.curvature_term_nats.reset();
    rows.emplace(row.name, &row);
  }
  for (const ErrorCurvature::Layer& layer : error.layers) {
    for (const std::string& name : {layer.name, StackOf(layer.name)}) {
      const auto found = rows.find(name);
      if (found == rows.end()) continue;
      LayerQuantization& row = *found->second;
      row.gradient_term_nats = row.gradient_term_nats.value_or(0) + layer.gradient_term_nats;
      row.curvature_term_nats = row.curvature_term_nats.value_or(0) + layer.curvature_term_nats;
    }
  }
}

void AddTo(Report& report, const CurvatureResult& result) {
  report.curvature = result.report;
  for (size_t i = 0; i < std::min(result.errors.size(), report.quantization.size()); ++i) {
    if (result.errors[i]) AddTo(report.quantization[i], *result.errors[i]);
  }
}

void AddTo(Report& report, const MixedPrecisionResult& result) {
  report.mixed_precision = result.mixtures;
}

void AddTo(Report& report, const AveragingResult& result) {
  report.averaging.insert(report.averaging.end(), result.averages.begin(), result.averages.end());
}

void AddTo(Report& report, const NoiseResult& result) { report.noise = result.report; }

void AddTo(Report& report, const PooledResult& result) { report.pooled = result.report; }

void AddTo(Report& report, const PredictedEnd& end) { report.predicted_end = end; }

void AddTo(Report&, const std::monostate&) {}

void AddTo(Report& report, const ResultValue& value) {
  std::visit([&](const auto& found) { AddTo(report, found); }, value);
}

}  // namespace

Report AssembleReport(const ReportHeader& header, absl::Span<const ProbeResult> results,
                      absl::Span<const ResultValue> found_by_jobs) {
  const SnapshotHeader& snapshot = header.snapshot;
  Report report;
  report.run_id = header.run_id;
  report.rank = header.rank;
  report.ranks = header.ranks;
  report.attempt = header.attempt;
  report.fingerprint = header.fingerprint;
  report.snapshot_dtype = header.snapshot_dtype;
  report.bytes_per_token = header.bytes_per_token;
  report.sequence = header.sequence;
  report.probe_state_sequence = header.probe_state_sequence;
  report.step = snapshot.info.step;
  report.snapshot_time_unix_seconds = snapshot.unix_seconds;
  report.learning_rate = snapshot.info.learning_rate;
  report.tokens = snapshot.info.tokens;
  report.training_loss_nats = snapshot.info.loss;
  report.trigger = snapshot.trigger;
  report.lr_phase = snapshot.lr.phase;
  report.lr_change_points = snapshot.lr.Points();
  report.decay_onset_step = snapshot.lr.decay_onset_step;
  report.rolled_back = snapshot.lr.rolled_back;
  report.snapshot_digest = header.snapshot_digest;
  report.parameter_digests = header.parameter_digests;
  report.plan = header.plan;
  report.cost["stall"] = header.stall_seconds;
  for (const ProbeResult& result : results) {
    for (const auto& [part, seconds] : result.cost_seconds) report.cost[part] += seconds;
    AddTo(report, result.value);
  }
  for (const ResultValue& value : found_by_jobs) AddTo(report, value);
  return report;
}

}  // namespace ptqwatch::internal
