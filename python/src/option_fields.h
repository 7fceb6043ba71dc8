#ifndef PTQWATCH_PYTHON_OPTION_FIELDS_H_
#define PTQWATCH_PYTHON_OPTION_FIELDS_H_

#include "ptqwatch/options.h"

// The only list of the options that Python sees: visit(name, field) for each field, in the order of
// the struct. Left out: MonitorOptions::clock. quantizer_spec.cc has those of QuantizerSpec.

namespace ptqwatch::python {

template <typename Visitor>
constexpr void VisitFields(ScheduleOptions& options, Visitor&& visit) {
  visit("every", options.every);
  visit("every_seconds", options.every_seconds);
  visit("log_spaced_per_decade", options.log_spaced_per_decade);
  visit("decay_density", options.decay_density);
}

template <typename Visitor>
constexpr void VisitFields(LayerSelection& layers, Visitor&& visit) {
  visit("include", layers.include);
  visit("exclude", layers.exclude);
  visit("output_head", layers.output_head);
  visit("routers", layers.routers);
  visit("embeddings", layers.embeddings);
}

template <typename Visitor>
constexpr void VisitFields(CurvatureOptions& options, Visitor&& visit) {
  visit("enabled", options.enabled);
  visit("scope", options.scope);
  visit("parameters", options.parameters);
  visit("eigenvalue_residual_ratio", options.eigenvalue_residual_ratio);
  visit("top_eigenvalues", options.top_eigenvalues);
  visit("bottom_eigenvalue", options.bottom_eigenvalue);
  visit("trace_relative_stderr", options.trace_relative_stderr);
}

template <typename Visitor>
constexpr void VisitFields(AveragingOptions& options, Visitor&& visit) {
  visit("enabled", options.enabled);
  visit("window", options.window);
  visit("spacing", options.spacing);
  visit("decay", options.decay);
  visit("merges", options.merges);
}

template <typename Visitor>
constexpr void VisitFields(CooldownOptions& options, Visitor&& visit) {
  visit("decay_steps", options.decay_steps);
  visit("shape", options.shape);
  visit("final_ratio", options.final_ratio);
  visit("lengths", options.lengths);
  visit("settle_steps", options.settle_steps);
  visit("every_snapshots", options.every_snapshots);
  visit("max_time", options.max_time);
}

template <typename Visitor>
constexpr void VisitFields(ServerSecurity& security, Visitor&& visit) {
  visit("certificate_file", security.certificate_file);
  visit("private_key_file", security.private_key_file);
  visit("client_ca_file", security.client_ca_file);
  visit("token_file", security.token_file);
}

template <typename Visitor>
constexpr void VisitFields(ServeOptions& options, Visitor&& visit) {
  visit("http", options.http);
  visit("grpc", options.grpc);
  visit("allow_remote", options.allow_remote);
  visit("allow_control", options.allow_control);
  visit("allowed_hosts", options.allowed_hosts);
  visit("security", options.security);
  visit("max_layers", options.max_layers);
  visit("targets_file", options.targets_file);
  visit("program", options.program);
  visit("environment", options.environment);
  visit("linger", options.linger);
  visit("max_memory", options.max_memory);
}

template <typename Visitor>
constexpr void VisitFields(MonitorOptions& options, Visitor&& visit) {
  visit("on_failure", options.on_failure);
  visit("schedule", options.schedule);
  visit("quantizers", options.quantizers);
  visit("overrides", options.overrides);
  visit("layers", options.layers);
  visit("calibration_mode", options.calibration_mode);
  visit("max_gram_bytes", options.max_gram_bytes);
  visit("curvature", options.curvature);
  visit("averaging", options.averaging);
  visit("cooldown", options.cooldown);
  visit("mixed_precision", options.mixed_precision);
  visit("noise_relative_norm", options.noise_relative_norm);
  visit("artifact_size", options.artifact_size);
  visit("bytes_per_token", options.bytes_per_token);
  visit("on_alert", options.on_alert);
  visit("relative_stderr", options.relative_stderr);
  visit("absolute_stderr_ratio", options.absolute_stderr_ratio);
  visit("max_probe_tokens", options.max_probe_tokens);
  visit("further_probe_sets", options.further_probe_sets);
  visit("max_snapshot_time", options.max_snapshot_time);
  visit("max_failures_in_a_row", options.max_failures_in_a_row);
  visit("seed", options.seed);
  visit("max_overhead", options.max_overhead);
  visit("adapt_plan", options.adapt_plan);
  visit("duty_cycle", options.duty_cycle);
  visit("max_bytes", options.max_bytes);
  visit("training_threads", options.training_threads);
  visit("measuring_threads", options.measuring_threads);
  visit("snapshot_dtype", options.snapshot_dtype);
  visit("monitor_device", options.monitor_device);
  visit("copy_beside_training", options.copy_beside_training);
  visit("device_reserve_bytes", options.device_reserve_bytes);
  visit("run_id", options.run_id);
  visit("run_dir", options.run_dir);
  visit("allow_changed_run", options.allow_changed_run);
  visit("rank", options.rank);
  visit("ranks", options.ranks);
  visit("ranks_from_environment", options.ranks_from_environment);
  visit("serve", options.serve);
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_OPTION_FIELDS_H_
