#ifndef PTQWATCH_TESTS_SUPPORT_SAMPLE_REPORT_H_
#define PTQWATCH_TESTS_SUPPORT_SAMPLE_REPORT_H_

#include <string>

#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch::testing {

inline LayerQuantization SampleLayer(const std::string& name, double error) {
  LayerQuantization layer;
  layer.name = name;
  layer.output_error_ratio = error;
  layer.rtn_output_error_ratio = 1.5 * error;
  layer.damp = 0.01;
  layer.tokens = 8192;
  layer.skipped_rows = 3;
  layer.dead_columns = 2;
  layer.status = LayerStatus::kOk;
  layer.gradient_term_nats = -0.001;
  layer.curvature_term_nats = error / 2;
  layer.dead_zone_ratio = 0.001;
  layer.grid_noise_ratio = error / 4;
  layer.scale_bias_ratio = -0.0005;
  layer.accumulated_error_ratio = 0.0125;
  layer.stacked = 16;
  layer.stacked_ok = 15;
  layer.output_error_p10_ratio = error / 2;
  layer.output_error_median_ratio = error;
  layer.output_error_p90_ratio = 2 * error;
  layer.entropy_bits = 2.62;
  return layer;
}

inline TaskReport SampleTask() {
  TaskReport task;
  task.task = "sciq";
  task.metric = "acc_norm";
  task.examples = 1000;
  task.value = 0.41;
  task.value_stderr = 0.015;
  task.degradation_ratio = 0.08;
  task.degradation_stderr = 0.012;
  return task;
}

inline QuantizationReport SampleQuantization(QuantizationMethod method, int bits, double delta) {
  QuantizationReport entry;
  entry.method = method;
  entry.bits = bits;
  entry.group_size = 128;
  entry.symmetric = false;
  entry.status = ProbeStatus::kOk;
  entry.status_detail = "fine";
  entry.loss_nats = 1.75 + delta;
  entry.delta_nats = delta;
  entry.delta_stderr_nats = delta / 20;
  entry.error_ratio = delta / 1.75;
  entry.error_ratio_stderr = delta / 35;
  entry.displacement_norm = 7.7;
  entry.predicted_delta_nats = 0.9 * delta;
  entry.curvature_batch_delta_nats = 1.1 * delta;
  entry.curvature_batch_delta_stderr_nats = delta / 15;
  entry.gradient_term_nats = -0.1 * delta;
  entry.curvature_term_nats = delta;
  entry.curvature_along_error = 1.25;
  entry.top_eigenvector_alignment = 0.003;
  entry.loss_along = {{0.5, 0.3 * delta, 0.2 * delta, 0.01 * delta},
                      {1.5, 2.5 * delta, 2.1 * delta, 0.1 * delta}};
  entry.beyond_quadratic_scale = 1.5;
  entry.critical_sharpness = 2.75;
  entry.accuracy_ratio = 0.41;
  entry.accuracy_degradation_ratio = 0.08;
  entry.accuracy_degradation_stderr = 0.01;
  entry.probe_tokens = 65536;
  entry.coverage_ratio = 0.1 + 0.2;  // not a short decimal
  entry.layers = {SampleLayer("blocks.0.weight", 0.02), SampleLayer("blocks.1.weight", 0.03)};
  entry.format = "int";
  entry.scale_rule = "even";
  entry.tasks = {SampleTask()};
  entry.change_nats = -delta / 3;
  entry.change_stderr_nats = delta / 25;
  entry.routing_change_ratio = delta / 10;
  entry.fallback_tokens_ratio = 0.004;
  entry.entropy_bits = bits - 0.375;
  entry.artifact_bytes = 4'000'000 * bits;
  return entry;
}

inline CurvatureReport SampleCurvature() {
  CurvatureReport curvature;
  curvature.status = ProbeStatus::kOk;
  curvature.status_detail = "sharp";
  curvature.scope = CurvatureScope::kQuantizedWeights;
  curvature.mode = HessianMode::kFiniteDifference;
  curvature.mode_detail = "an operator has no second derivative";
  curvature.parameters = 24576;
  curvature.loss_nats = 1.61;
  curvature.batch_tokens = 4096;
  curvature.gradient_norm = 0.31;
  curvature.top_eigenvalue = 9.25;
  curvature.top_eigenvalue_upper = 9.75;
  curvature.top_eigenvalue_residual_ratio = 0.04;
  curvature.bottom_eigenvalue = -1.5;
  curvature.bottom_eigenvalue_residual_ratio = 0.03;
  curvature.eigenvalue_method = EigenvalueMethod::kLanczos;
  curvature.top_eigenvalues = {{9.25, 0.04, true, 5, EigenvalueStart::kWarm},
                               {7.5, 0.05, true, 6, EigenvalueStart::kCold}};
  curvature.trace = 368.5;
  curvature.trace_stderr = 12.5;
  curvature.trace_interval = 26.25;
  curvature.trace_probes = 16;
  curvature.trace_batch_stderr = 20.5;
  curvature.weighted_trace = 10.2;
  curvature.weighted_trace_stderr = 0.4;
  curvature.trace_status = ProbeStatus::kOk;
  curvature.trace_detail = "slowly";
  curvature.step_check_ratio = 1e-4;
  curvature.hessian_products = 23;
  curvature.graph_bytes = 123456;
  curvature.optimizer = OptimizerKind::kAdamW;
  curvature.edge_of_stability_ratio = 0.83;
  curvature.edge_of_stability_residual_ratio = 0.011;
  curvature.edge_of_stability_detail = "the second moment of 'w' is negative or not finite";
  curvature.edge_of_stability_status = ProbeStatus::kOk;
  curvature.layers = {{"blocks.0.weight", 12288, 205, 9.5, 0.021, 2},
                      {"blocks.1.weight", 12288, 168, 8.5, 0.033, 2}};
  return curvature;
}

inline AveragingReport SampleAveraging() {
  AveragingReport averaging;
  averaging.kind = AveragingKind::kExponential;
  averaging.window = 6;
  averaging.decay = 0.9;
  averaging.snapshots = 5;
  averaging.first_step = 12800;
  averaging.status = ProbeStatus::kOk;
  averaging.status_detail = "still filling";
  averaging.loss_nats = 1.66;
  averaging.loss_stderr_nats = 0.004;
  averaging.probe_tokens = 65536;
  averaging.quantization = {SampleQuantization(QuantizationMethod::kGptq, 3, 0.064)};
  averaging.shape = DecayShape::kCosine;
  averaging.change_nats = -0.05;
  averaging.change_stderr_nats = 0.002;
  return averaging;
}

inline MixedPrecisionReport SampleMixedPrecision() {
  MixedPrecisionReport mixed;
  mixed.method = QuantizationMethod::kGptq;
  mixed.bits = 3;
  mixed.raised_bits = 4;
  mixed.raised_layers = {"blocks.1.weight"};
  mixed.mean_bits = 3.25;
  mixed.status = ProbeStatus::kOk;
  mixed.status_detail = "measured";
  mixed.predicted_delta_nats = 0.15;
  mixed.delta_nats = 0.16;
  mixed.delta_stderr_nats = 0.007;
  mixed.format = "int";
  return mixed;
}

inline NoiseReport SampleNoise() {
  NoiseReport noise;
  noise.status = ProbeStatus::kOk;
  noise.status_detail = "quiet";
  noise.relative_norm = 0.1;
  noise.draws = 8;
  noise.delta_nats = 0.031;
  noise.delta_stderr_nats = 0.0015;
  noise.probe_tokens = 65536;
  noise.routing_change_ratio = 0.0625;
  return noise;
}

inline PooledLoss SamplePooled() {
  PooledLoss pooled;
  pooled.method = QuantizationMethod::kGptq;
  pooled.bits = 3;
  pooled.format = "int";
  pooled.status = ProbeStatus::kOk;
  pooled.status_detail = "all of them";
  pooled.delta_nats = 0.205;
  pooled.delta_stderr_nats = 0.006;
  pooled.error_ratio = 0.117;
  pooled.error_ratio_stderr = 0.003;
  pooled.probe_tokens = 196608;
  for (int64_t i = 0; i < 3; ++i) {
    ProbeSet& set = pooled.sets.emplace_back();
    const double x = 0.2 + 0.01 * static_cast<double>(i);  // a token's loss increase
    set.set = i;
    set.status = ProbeStatus::kOk;
    set.status_detail = "measured";
    set.units = 64;
    set.tokens = 65536;
    set.change = 65536 * x;
    set.loss = 65536 * 1.75;
    set.weight = 65536;
    set.change_squared = 1.1 * 65536 * 1024 * x * x;
    set.loss_squared = 65536 * 1024 * 3.125;
    set.weight_squared = 65536 * 1024;
    set.change_by_loss = 65536 * 1024 * 1.75 * x;
    set.change_by_weight = 65536 * 1024 * x;
  }
  return pooled;
}

inline PredictedEnd SamplePrediction() {
  SimulatedDecay decay;
  decay.steps = 400;
  decay.settle_steps = 100;
  decay.status = ProbeStatus::kOk;
  decay.status_detail = "short";
  decay.loss_nats = 1.64;
  decay.trace = 210;
  decay.top_eigenvalue = 6.5;
  decay.quantization = {{QuantizationMethod::kGptq, 3, 0.06, 0.001, "int"}};
  decay.seconds = 2.5;
  PredictedEnd end;
  end.status = ProbeStatus::kOk;
  end.status_detail = "one length of three";
  end.step = 8000;
  end.learning_rate = 0.01;
  end.shape = DecayShape::kCosine;
  end.decay_steps = 3200;
  end.simulated_steps = 500;
  end.seconds = 2.75;
  end.loss_nats = 1.58;
  end.loss_low_nats = 1.57;
  end.loss_high_nats = 1.59;
  end.trace = 350;
  end.trace_low = 300;
  end.trace_high = 400;
  end.quantization = {{QuantizationMethod::kGptq, 3, 0.088, 0.071, 0.109, "int"}};
  end.decays = {decay};
  return end;
}

inline Verdict SampleVerdict() {
  Verdict verdict;
  verdict.state = VerdictState::kDecayDegradation;
  verdict.onset_step = 14400;
  verdict.method = QuantizationMethod::kGptq;
  verdict.bits = 3;
  verdict.severity_nats = 0.109;
  verdict.severity_low_nats = 0.08;
  verdict.severity_high_nats = 0.14;
  verdict.severity_ratio = 2.1;
  verdict.severity_low_ratio = 1.8;
  verdict.severity_high_ratio = 2.4;
  verdict.sigmas = 9.5;
  verdict.alarm_sigmas = 3.5;
  verdict.evidence = {{"loss_delta_gptq3", 0.208, 0.099, 2.1, 8.5}};
  verdict.outlook = {{QuantizationMethod::kGptq, 3, 0.2, 0.05, 1.70, 14000, 0.006, "int"}};
  verdict.advice = {{AdviceAction::kAverageWeights, QuantizationMethod::kGptq, 3, 1.77, 1.72, 0.004,
                     "average the last 6 snapshots", "int"}};
  verdict.format = "int";
  verdict.summary = "3-bit GPTQ costs 0.208 nats";
  verdict.decay_onset_step = 12801;
  verdict.loss_converged_step = 9600;
  verdict.onset_low_step = 13200;
  verdict.onset_high_step = 14400;
  return verdict;
}

/// A report in which no member has its default value.
inline AnalyzedReport SampleReport() {
  AnalyzedReport analyzed;
  Report& report = analyzed.report;
  report.schema_version = 7;
  report.run_id = "run-1";
  report.attempt = 2;
  report.fingerprint = "f00d";
  report.sequence = 12;
  report.branch = "cooldown";
  report.rank = 3;
  report.ranks = 4;
  report.source = "trajectory";
  report.snapshot_dtype = "bfloat16";
  report.bytes_per_token = 3.25;
  report.probe_state_sequence = 11;
  report.step = 16000;
  report.snapshot_time_unix_seconds = 1700000000.123456;
  report.learning_rate = 1e-3 / 3;
  report.tokens = (int64_t{1} << 53) + 1;  // not representable as a double
  report.training_loss_nats = 1.6;
  report.trigger = SnapshotTrigger::kFinish;
  report.lr_phase = LrPhase::kDecay;
  report.lr_change_points = {{300, 0.01}, {12800, 0.01}};
  report.decay_onset_step = 12801;
  report.rolled_back = true;
  report.snapshot_digest = "0123456789abcdef0123456789abcdef";
  report.parameter_digests = {{"blocks.0.weight", "0123456789abcdef"},
                              {"head.bias", "89abcdef01234567"}};
  report.probe_status = ProbeStatus::kOk;
  report.probe_status_detail = "all good";
  report.probe_loss_nats = 1.75;
  report.probe_loss_stderr_nats = 0.004;
  report.probe_tokens = 65536;
  report.probe_accuracy_ratio = 0.45;
  report.probe_accuracy_stderr = 0.006;
  report.calibration_mode = CalibrationMode::kSequential;
  report.quantization = {SampleQuantization(QuantizationMethod::kGptq, 3, 0.208),
                         SampleQuantization(QuantizationMethod::kRtn, 4, 0.05)};
  report.skipped_layers = {{"head.weight", "output head", 4096}};
  report.unseen = {.ratio = 0.25, .largest = "mix.weight", .reason = "goes into aten::mix"};
  report.curvature = SampleCurvature();
  report.averaging = {SampleAveraging()};
  report.mixed_precision = {SampleMixedPrecision()};
  report.noise = SampleNoise();
  report.pooled = SamplePooled();
  report.predicted_end = SamplePrediction();
  report.plan = Plan{4, 2, 8, 3, 5, 2};
  report.tasks = {SampleTask(), SampleTask()};
  report.cost = {{"stall", 0.002}, {"gptq", 1.25}, {"probe", 0.5}};
  analyzed.verdict = SampleVerdict();
  return analyzed;
}

inline MonitorStatus SampleStatus() {
  MonitorStatus status;
  status.step = 16010;
  status.steps_total = 4010;
  status.last_step_unix_seconds = 1700000010.5;
  status.learning_rate = 0.0025;
  status.tokens = 8200000;
  status.training_loss_nats = 1.6;
  status.lr_phase = LrPhase::kDecay;
  status.health = Health::kOk;
  status.snapshots = {20, 3, 0, 1, 0};
  status.overhead_ratio = 0.004;
  status.dropped_reports = {{"journal", "queue_full", 4}};
  return status;
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_SAMPLE_REPORT_H_
