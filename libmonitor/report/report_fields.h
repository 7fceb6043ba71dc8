#ifndef PTQWATCH_REPORT_REPORT_FIELDS_H_
#define PTQWATCH_REPORT_REPORT_FIELDS_H_

#include <concepts>
#include <type_traits>

#include "ptqwatch/event.h"
#include "ptqwatch/report.h"

// The only list of the members of reports and events and their keys. `VisitFields(record, visit)`
// calls `visit("key", record.member)` for each member, in the order of writing. Add new members
// here; every form of a record (JSON, protobuf) follows.

namespace ptqwatch::internal {

/// T or const T.
template <typename Record, typename T>
concept Of = std::same_as<std::remove_const_t<Record>, T>;

template <Of<LrChangePoint> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("step", record.step);
  visit("learning_rate", record.learning_rate);
}

template <Of<LayerQuantization> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("name", record.name);
  visit("output_error_ratio", record.output_error_ratio);
  visit("rtn_output_error_ratio", record.rtn_output_error_ratio);
  visit("damp", record.damp);
  visit("tokens", record.tokens);
  visit("skipped_rows", record.skipped_rows);
  visit("dead_columns", record.dead_columns);
  visit("status", record.status);
  visit("gradient_term_nats", record.gradient_term_nats);
  visit("curvature_term_nats", record.curvature_term_nats);
  visit("dead_zone_ratio", record.dead_zone_ratio);
  visit("grid_noise_ratio", record.grid_noise_ratio);
  visit("scale_bias_ratio", record.scale_bias_ratio);
  visit("accumulated_error_ratio", record.accumulated_error_ratio);
  visit("stacked", record.stacked);
  visit("stacked_ok", record.stacked_ok);
  visit("output_error_p10_ratio", record.output_error_p10_ratio);
  visit("output_error_median_ratio", record.output_error_median_ratio);
  visit("output_error_p90_ratio", record.output_error_p90_ratio);
  visit("entropy_bits", record.entropy_bits);
}

template <Of<LossAlong> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("scale", record.scale);
  visit("delta_nats", record.delta_nats);
  visit("predicted_delta_nats", record.predicted_delta_nats);
  visit("delta_stderr_nats", record.delta_stderr_nats);
}

template <Of<TaskReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("task", record.task);
  visit("metric", record.metric);
  visit("examples", record.examples);
  visit("value", record.value);
  visit("value_stderr", record.value_stderr);
  visit("degradation_ratio", record.degradation_ratio);
  visit("degradation_stderr", record.degradation_stderr);
}

template <Of<QuantizationReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("scale_rule", record.scale_rule);
  visit("group_size", record.group_size);
  visit("symmetric", record.symmetric);
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("loss_nats", record.loss_nats);
  visit("delta_nats", record.delta_nats);
  visit("delta_stderr_nats", record.delta_stderr_nats);
  visit("error_ratio", record.error_ratio);
  visit("error_ratio_stderr", record.error_ratio_stderr);
  visit("displacement_norm", record.displacement_norm);
  visit("predicted_delta_nats", record.predicted_delta_nats);
  visit("curvature_batch_delta_nats", record.curvature_batch_delta_nats);
  visit("curvature_batch_delta_stderr_nats", record.curvature_batch_delta_stderr_nats);
  visit("prediction_detail", record.prediction_detail);
  visit("gradient_term_nats", record.gradient_term_nats);
  visit("curvature_term_nats", record.curvature_term_nats);
  visit("curvature_along_error", record.curvature_along_error);
  visit("top_eigenvector_alignment", record.top_eigenvector_alignment);
  visit("loss_along", record.loss_along);
  visit("beyond_quadratic_scale", record.beyond_quadratic_scale);
  visit("critical_sharpness", record.critical_sharpness);
  visit("accuracy_ratio", record.accuracy_ratio);
  visit("accuracy_degradation_ratio", record.accuracy_degradation_ratio);
  visit("accuracy_degradation_stderr", record.accuracy_degradation_stderr);
  visit("probe_tokens", record.probe_tokens);
  visit("coverage_ratio", record.coverage_ratio);
  visit("tasks", record.tasks);
  visit("change_nats", record.change_nats);
  visit("change_stderr_nats", record.change_stderr_nats);
  visit("routing_change_ratio", record.routing_change_ratio);
  visit("fallback_tokens_ratio", record.fallback_tokens_ratio);
  visit("entropy_bits", record.entropy_bits);
  visit("artifact_bytes", record.artifact_bytes);
  visit("layers", record.layers);
}

template <Of<LayerCurvature> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("name", record.name);
  visit("parameters", record.parameters);
  visit("trace", record.trace);
  visit("trace_stderr", record.trace_stderr);
  visit("weight_mean_square", record.weight_mean_square);
  visit("stacked", record.stacked);
}

template <Of<EigenvalueReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("value", record.value);
  visit("residual_ratio", record.residual_ratio);
  visit("converged", record.converged);
  visit("products", record.products);
  visit("start", record.start);
}

template <Of<CurvatureReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("scope", record.scope);
  visit("mode", record.mode);
  visit("mode_detail", record.mode_detail);
  visit("parameters", record.parameters);
  visit("loss_nats", record.loss_nats);
  visit("batch_tokens", record.batch_tokens);
  visit("gradient_norm", record.gradient_norm);
  visit("top_eigenvalue", record.top_eigenvalue);
  visit("top_eigenvalue_upper", record.top_eigenvalue_upper);
  visit("top_eigenvalue_residual_ratio", record.top_eigenvalue_residual_ratio);
  visit("bottom_eigenvalue", record.bottom_eigenvalue);
  visit("bottom_eigenvalue_residual_ratio", record.bottom_eigenvalue_residual_ratio);
  visit("eigenvalue_method", record.eigenvalue_method);
  visit("top_eigenvalues", record.top_eigenvalues);
  visit("trace", record.trace);
  visit("trace_stderr", record.trace_stderr);
  visit("trace_interval", record.trace_interval);
  visit("trace_probes", record.trace_probes);
  visit("trace_batch_stderr", record.trace_batch_stderr);
  visit("weighted_trace", record.weighted_trace);
  visit("weighted_trace_stderr", record.weighted_trace_stderr);
  visit("trace_status", record.trace_status);
  visit("trace_detail", record.trace_detail);
  visit("step_check_ratio", record.step_check_ratio);
  visit("hessian_products", record.hessian_products);
  visit("graph_bytes", record.graph_bytes);
  visit("optimizer", record.optimizer);
  visit("edge_of_stability_ratio", record.edge_of_stability_ratio);
  visit("edge_of_stability_residual_ratio", record.edge_of_stability_residual_ratio);
  visit("edge_of_stability_detail", record.edge_of_stability_detail);
  visit("edge_of_stability_status", record.edge_of_stability_status);
  visit("layers", record.layers);
}

template <Of<Event> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("kind", record.kind);
  visit("severity", record.severity);
  visit("step", record.step);
  visit("time_unix_seconds", record.time_unix_seconds);
  visit("message", record.message);
}

template <Of<SkippedLayer> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("name", record.name);
  visit("reason", record.reason);
  visit("parameters", record.parameters);
}

template <Of<UnseenWeights> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("ratio", record.ratio);
  visit("largest", record.largest);
  visit("reason", record.reason);
}

template <Of<Plan> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("probe_batches", record.probe_batches);
  visit("calibration_batches", record.calibration_batches);
  visit("curvature_sequences", record.curvature_sequences);
  visit("curvature_every", record.curvature_every);
  visit("merges", record.merges);
  visit("further_probe_sets", record.further_probe_sets);
}

template <Of<AveragingReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("kind", record.kind);
  visit("window", record.window);
  visit("decay", record.decay);
  visit("snapshots", record.snapshots);
  visit("first_step", record.first_step);
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("loss_nats", record.loss_nats);
  visit("loss_stderr_nats", record.loss_stderr_nats);
  visit("probe_tokens", record.probe_tokens);
  visit("quantization", record.quantization);
  visit("shape", record.shape);
  visit("change_nats", record.change_nats);
  visit("change_stderr_nats", record.change_stderr_nats);
}

template <Of<MixedPrecisionReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("raised_bits", record.raised_bits);
  visit("raised_layers", record.raised_layers);
  visit("mean_bits", record.mean_bits);
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("predicted_delta_nats", record.predicted_delta_nats);
  visit("delta_nats", record.delta_nats);
  visit("delta_stderr_nats", record.delta_stderr_nats);
}

template <Of<NoiseReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("relative_norm", record.relative_norm);
  visit("draws", record.draws);
  visit("delta_nats", record.delta_nats);
  visit("delta_stderr_nats", record.delta_stderr_nats);
  visit("probe_tokens", record.probe_tokens);
  visit("routing_change_ratio", record.routing_change_ratio);
}

template <Of<ProbeSet> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("set", record.set);
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("units", record.units);
  visit("tokens", record.tokens);
  visit("change", record.change);
  visit("loss", record.loss);
  visit("weight", record.weight);
  visit("change_squared", record.change_squared);
  visit("loss_squared", record.loss_squared);
  visit("weight_squared", record.weight_squared);
  visit("change_by_loss", record.change_by_loss);
  visit("change_by_weight", record.change_by_weight);
}

template <Of<PooledLoss> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("delta_nats", record.delta_nats);
  visit("delta_stderr_nats", record.delta_stderr_nats);
  visit("error_ratio", record.error_ratio);
  visit("error_ratio_stderr", record.error_ratio_stderr);
  visit("probe_tokens", record.probe_tokens);
  visit("sets", record.sets);
}

template <Of<SimulatedError> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("error_ratio", record.error_ratio);
  visit("error_ratio_stderr", record.error_ratio_stderr);
}

template <Of<SimulatedDecay> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("steps", record.steps);
  visit("settle_steps", record.settle_steps);
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("loss_nats", record.loss_nats);
  visit("trace", record.trace);
  visit("top_eigenvalue", record.top_eigenvalue);
  visit("quantization", record.quantization);
  visit("seconds", record.seconds);
}

template <Of<PredictedError> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("error_ratio", record.error_ratio);
  visit("error_low_ratio", record.error_low_ratio);
  visit("error_high_ratio", record.error_high_ratio);
}

template <Of<PredictedEnd> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("status", record.status);
  visit("status_detail", record.status_detail);
  visit("step", record.step);
  visit("learning_rate", record.learning_rate);
  visit("shape", record.shape);
  visit("decay_steps", record.decay_steps);
  visit("simulated_steps", record.simulated_steps);
  visit("seconds", record.seconds);
  visit("loss_nats", record.loss_nats);
  visit("loss_low_nats", record.loss_low_nats);
  visit("loss_high_nats", record.loss_high_nats);
  visit("trace", record.trace);
  visit("trace_low", record.trace_low);
  visit("trace_high", record.trace_high);
  visit("quantization", record.quantization);
  visit("decays", record.decays);
}

template <Of<Evidence> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("series", record.series);
  visit("value", record.value);
  visit("expected", record.expected);
  visit("ratio", record.ratio);
  visit("sigmas", record.sigmas);
}

template <Of<DecayOutlook> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("gain_kept_ratio", record.gain_kept_ratio);
  visit("gain_kept_stderr", record.gain_kept_stderr);
  visit("minimum_loss_nats", record.minimum_loss_nats);
  visit("minimum_step", record.minimum_step);
  visit("minimum_learning_rate", record.minimum_learning_rate);
}

template <Of<Advice> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("action", record.action);
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("now_nats", record.now_nats);
  visit("expected_nats", record.expected_nats);
  visit("expected_stderr_nats", record.expected_stderr_nats);
  visit("text", record.text);
}

template <Of<Verdict> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("state", record.state);
  visit("onset_step", record.onset_step);
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("severity_nats", record.severity_nats);
  visit("severity_low_nats", record.severity_low_nats);
  visit("severity_high_nats", record.severity_high_nats);
  visit("severity_ratio", record.severity_ratio);
  visit("severity_low_ratio", record.severity_low_ratio);
  visit("severity_high_ratio", record.severity_high_ratio);
  visit("sigmas", record.sigmas);
  visit("alarm_sigmas", record.alarm_sigmas);
  visit("evidence", record.evidence);
  visit("outlook", record.outlook);
  visit("advice", record.advice);
  visit("summary", record.summary);
  visit("decay_onset_step", record.decay_onset_step);
  visit("loss_converged_step", record.loss_converged_step);
  visit("onset_low_step", record.onset_low_step);
  visit("onset_high_step", record.onset_high_step);
}

template <Of<ParameterDigest> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("name", record.name);
  visit("digest", record.digest);
}

template <Of<Report> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("schema_version", record.schema_version);
  visit("run_id", record.run_id);
  visit("attempt", record.attempt);
  visit("fingerprint", record.fingerprint);
  visit("sequence", record.sequence);
  visit("branch", record.branch);
  visit("rank", record.rank);
  visit("ranks", record.ranks);
  visit("source", record.source);
  visit("snapshot_dtype", record.snapshot_dtype);
  visit("probe_state_sequence", record.probe_state_sequence);
  visit("step", record.step);
  visit("snapshot_time_unix_seconds", record.snapshot_time_unix_seconds);
  visit("learning_rate", record.learning_rate);
  visit("tokens", record.tokens);
  visit("training_loss_nats", record.training_loss_nats);
  visit("trigger", record.trigger);
  visit("lr_phase", record.lr_phase);
  visit("lr_change_points", record.lr_change_points);
  visit("decay_onset_step", record.decay_onset_step);
  visit("rolled_back", record.rolled_back);
  visit("snapshot_digest", record.snapshot_digest);
  visit("parameter_digests", record.parameter_digests);
  visit("probe_status", record.probe_status);
  visit("probe_status_detail", record.probe_status_detail);
  visit("probe_loss_nats", record.probe_loss_nats);
  visit("probe_loss_stderr_nats", record.probe_loss_stderr_nats);
  visit("probe_tokens", record.probe_tokens);
  visit("probe_examples", record.probe_examples);
  visit("bytes_per_token", record.bytes_per_token);
  visit("probe_accuracy_ratio", record.probe_accuracy_ratio);
  visit("probe_accuracy_stderr", record.probe_accuracy_stderr);
  visit("calibration_mode", record.calibration_mode);
  visit("quantization", record.quantization);
  visit("skipped_layers", record.skipped_layers);
  visit("unseen", record.unseen);
  visit("curvature", record.curvature);
  visit("averaging", record.averaging);
  visit("mixed_precision", record.mixed_precision);
  visit("noise", record.noise);
  visit("pooled", record.pooled);
  visit("predicted_end", record.predicted_end);
  visit("plan", record.plan);
  visit("tasks", record.tasks);
  visit("cost", record.cost);
}

template <Of<AnalyzedReport> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  VisitFields(record.report, visit);
  visit("verdict", record.verdict);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_REPORT_FIELDS_H_
