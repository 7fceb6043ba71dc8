#include "ptqwatch/metric_catalog.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "ptqwatch/config.h"
#include "report/metric_samples.h"

namespace ptqwatch {
namespace internal {
namespace {

using enum MetricType;

std::vector<MetricInfo> MeasurementMetrics() {
  using Q = QuantizationReport;
  using C = CurvatureReport;
  return {
      {"ptqwatch_quantization_error_ratio",
       kGauge,
       "Relative loss increase under quantization, CE(W_hat) / CE(W) - 1, on the probe tokens of "
       "the newest snapshot.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::error_ratio>},
      {"ptqwatch_quantization_error_ratio_stderr",
       kGauge,
       "Standard error of the relative loss increase; the unit is a sequence.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::error_ratio_stderr>},
      {"ptqwatch_quantization_loss_delta_nats",
       kGauge,
       "Loss increase under quantization, CE(W_hat) - CE(W).",
       {"method", "bits", "format"},
       PerQuantizer<&Q::delta_nats>},
      {"ptqwatch_quantization_loss_delta_nats_stderr",
       kGauge,
       "Paired standard error of the loss increase; the unit is a sequence.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::delta_stderr_nats>},
      {"ptqwatch_quantized_loss_nats",
       kGauge,
       "Loss of the quantized model on the probe tokens, CE(W_hat).",
       {"method", "bits", "format"},
       PerQuantizer<&Q::loss_nats>},
      {"ptqwatch_quantization_displacement_norm",
       kGauge,
       "Frobenius norm of W_hat - W over the quantized weights.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::displacement_norm>},
      {"ptqwatch_routing_change_ratio",
       kGauge,
       "Share of the routers' choices, one a token and router, that take another set of experts "
       "under quantization. Mixtures of experts only.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::routing_change_ratio>},
      {"ptqwatch_quantization_coverage_ratio",
       kGauge,
       "Share of all parameters that was quantized.",
       {"method", "bits", "format"},
       Coverage},
      {"ptqwatch_quantization_entropy",
       kGauge,
       "Entropy of the codes in bits a weight: what an entropy coder needs for them. With "
       "MonitorOptions::artifact_size only.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::entropy_bits>},
      {"ptqwatch_quantization_artifact_bytes",
       kGauge,
       "Bytes of all parameters with the codes compressed to their entropy, scales beside them, "
       "and what has no codes in 16 bits an element. With MonitorOptions::artifact_size only.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::artifact_bytes>},
      {"ptqwatch_unseen_weights_ratio",
       kGauge,
       "Share of the matrix weights that is not measured, without embeddings, output head, routers "
       "and what is excluded. largest: its largest weight; reason: of that one.",
       {"largest", "reason"},
       Unseen},
      {"ptqwatch_layer_quantization_error_ratio",
       kGauge,
       "Relative squared error of a layer's output under quantization, tr(dW H dW^T) / "
       "tr(W H W^T). Layers beyond the cap are averaged in layer=\"_overflow\".",
       {"layer", "method", "bits", "format"},
       PerLayer},
      {"ptqwatch_probe_loss_nats",
       kGauge,
       "Loss of the unquantized model on the probe tokens, CE(W).",
       {},
       [](Input in) { return One(Probed(in) ? Probed(in)->probe_loss_nats : std::nullopt); }},
      {"ptqwatch_probe_loss_stderr_nats",
       kGauge,
       "Standard error of the probe loss; the unit is a sequence.",
       {},
       [](Input in) {
         return One(Probed(in) ? Probed(in)->probe_loss_stderr_nats : std::nullopt);
       }},
      {"ptqwatch_probe_tokens",
       kGauge,
       "Tokens behind ptqwatch_probe_loss_nats.",
       {},
       [](Input in) { return Probed(in) ? Count(Probed(in)->probe_tokens) : Samples{}; }},
      {"ptqwatch_probe_bytes_per_token",
       kGauge,
       "Bytes of the probe's text for each token, as the trainer said "
       "(MonitorOptions::bytes_per_token): a loss of x nats is x / ln 2 / this bits a byte.",
       {},
       [](Input in) { return One(Probed(in) ? Probed(in)->bytes_per_token : std::nullopt); }},
      {"ptqwatch_quantization_curvature_nats",
       kGauge,
       "Second-order prediction of the loss increase, g'd + d'Hd/2 along d = W_hat - W, on the "
       "curvature batch.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::predicted_delta_nats>},
      {"ptqwatch_curvature_batch_delta_nats",
       kGauge,
       "Measured loss increase on the curvature batch.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::curvature_batch_delta_nats>},
      {"ptqwatch_quantization_gradient_term_nats",
       kGauge,
       "First-order term g'd of the predicted loss increase.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::gradient_term_nats>},
      {"ptqwatch_quantization_curvature_term_nats",
       kGauge,
       "Second-order term d'Hd/2 of the predicted loss increase.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::curvature_term_nats>},
      {"ptqwatch_quantization_curvature_along_error",
       kGauge,
       "d'Hd / d'd: how sharp the loss is along the quantization error.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::curvature_along_error>},
      {"ptqwatch_quantization_top_eigenvector_alignment_ratio",
       kGauge,
       "(v'd)^2 / d'd: share of the quantization error along the top eigenvector v of the Hessian.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::top_eigenvector_alignment>},
      {"ptqwatch_hessian_top_eigenvalue",
       kGauge,
       "Largest eigenvalue of the loss Hessian on the curvature batch, over the weights of "
       "MonitorOptions::curvature.scope.",
       {},
       OfCurvature<&C::top_eigenvalue>},
      {"ptqwatch_hessian_top_eigenvalue_upper",
       kGauge,
       "With 97.5 % probability the largest eigenvalue is at most this.",
       {},
       OfCurvature<&C::top_eigenvalue_upper>},
      {"ptqwatch_hessian_top_eigenvalue_residual_ratio",
       kGauge,
       "||Hv - lambda v|| / |lambda| of ptqwatch_hessian_top_eigenvalue.",
       {},
       OfCurvature<&C::top_eigenvalue_residual_ratio>},
      {"ptqwatch_hessian_bottom_eigenvalue",
       kGauge,
       "Smallest eigenvalue of the loss Hessian, if "
       "MonitorOptions::curvature.bottom_eigenvalue is set.",
       {},
       OfCurvature<&C::bottom_eigenvalue>},
      {"ptqwatch_edge_of_stability_ratio",
       kGauge,
       "How near the optimizer's steps are to growing along the sharpest direction; 1 is the edge. "
       "lambda_max eta / 2 for SGD; docs/curvature.md has the others. A lower bound if "
       "the scope leaves trained parameters out.",
       {},
       OfCurvature<&C::edge_of_stability_ratio>},
      {"ptqwatch_edge_of_stability_residual_ratio",
       kGauge,
       "Relative residual of the eigenvalue at the edge of stability.",
       {},
       OfCurvature<&C::edge_of_stability_residual_ratio>},
      {"ptqwatch_hessian_trace",
       kGauge,
       "Trace of the loss Hessian in MonitorOptions::curvature.scope (Hutchinson).",
       {},
       OfCurvature<&C::trace>},
      {"ptqwatch_hessian_trace_stderr",
       kGauge,
       "Standard error of the Hessian's trace.",
       {},
       OfCurvature<&C::trace_stderr>},
      {"ptqwatch_hessian_trace_interval",
       kGauge,
       "Half the width of the trace's 95 % confidence interval (Student's t).",
       {},
       OfCurvature<&C::trace_interval>},
      {"ptqwatch_hessian_trace_batch_stderr",
       kGauge,
       "Standard error of ptqwatch_hessian_trace from the choice of curvature batches.",
       {},
       OfCurvature<&C::trace_batch_stderr>},
      {"ptqwatch_weighted_hessian_trace",
       kGauge,
       "Sum over parameters of mean(w^2) times the trace of their Hessian block: independent of "
       "the weights' scale.",
       {},
       OfCurvature<&C::weighted_trace>},
      {"ptqwatch_weighted_hessian_trace_stderr",
       kGauge,
       "Standard error of the weighted trace.",
       {},
       OfCurvature<&C::weighted_trace_stderr>},
      {"ptqwatch_layer_hessian_trace",
       kGauge,
       "Trace of the Hessian block of a parameter. Layers beyond the cap are averaged in "
       "layer=\"_overflow\".",
       {"layer"},
       LayerTraces},
  };
}

std::vector<MetricInfo> RunMetrics() {
  return {
      {"ptqwatch_snapshot_step",
       kGauge,
       "Optimizer step of the newest measured snapshot.",
       {},
       [](Input in) { return in.report ? Count(in.report->report.step) : Samples{}; }},
      {"ptqwatch_snapshot_timestamp_seconds",
       kGauge,
       "Unix time of the newest measured snapshot.",
       {},
       [](Input in) {
         return in.report ? One(in.report->report.snapshot_time_unix_seconds) : Samples{};
       }},
      {"ptqwatch_probe_duration_seconds",
       kGauge,
       "Time the monitor thread spent on the newest snapshot, by part.",
       {"probe"},
       ProbeDurations},
      {"ptqwatch_decay_onset_step",
       kGauge,
       "First step with a learning rate below the plateau.",
       {},
       [](Input in) { return in.report ? One(in.report->report.decay_onset_step) : Samples{}; }},
      {"ptqwatch_step",
       kGauge,
       "Optimizer step of the training run.",
       {},
       [](Input in) { return One(in.status.step); }},
      {"ptqwatch_steps_total",
       kCounter,
       "Steps that this process reported to the monitor.",
       {},
       [](Input in) { return Count(in.status.steps_total); }},
      {"ptqwatch_last_step_timestamp_seconds",
       kGauge,
       "Unix time of the last step.",
       {},
       [](Input in) { return AfterFirstStep(in, in.status.last_step_unix_seconds); }},
      {"ptqwatch_tokens",
       kGauge,
       "Training tokens seen so far.",
       {},
       [](Input in) { return One(in.status.tokens); }},
      {"ptqwatch_learning_rate",
       kGauge,
       "Learning rate of the last step.",
       {},
       [](Input in) { return One(in.status.learning_rate); }},
      {"ptqwatch_training_loss_nats",
       kGauge,
       "Training loss of the last step.",
       {},
       [](Input in) { return One(in.status.training_loss_nats); }},
      {"ptqwatch_lr_phase",
       kGauge,
       "1 for the current phase of the learning-rate schedule, 0 for the others.",
       {"phase"},
       [](Input in) { return OneHot(in.status.lr_phase); }},
      {"ptqwatch_health",
       kGauge,
       "1 for the current health of the monitor, 0 for the others.",
       {"state"},
       [](Input in) { return OneHot(in.status.health); }},
      {"ptqwatch_snapshots_total", kCounter, "Due snapshots, by result.", {"result"}, Snapshots},
      {"ptqwatch_reports_total",
       kCounter,
       "Reports published.",
       {},
       [](Input in) { return Count(in.status.reports_total); }},
      {"ptqwatch_probe_failures_total",
       kCounter,
       "Probes that ended without a result.",
       {},
       [](Input in) { return Count(in.status.probe_failures_total); }},
      {"ptqwatch_state_write_failures_total",
       kCounter,
       "Reports after which the run directory's state file could not be written.",
       {},
       [](Input in) { return Count(in.status.state_write_failures_total); }},
      {"ptqwatch_dropped_reports_total",
       kCounter,
       "Reports and events that an exporter did not deliver. Absent until the first one.",
       {"exporter", "reason"},
       Drops},
      {"ptqwatch_status_timestamp_seconds",
       kGauge,
       "Unix time of the run's last status, which it writes once a second.",
       {},
       [](Input in) { return One(in.status_unix_seconds); }},
      {"ptqwatch_server_restarts_total",
       kCounter,
       "Restarts of the server beside the run (MonitorOptions::serve); absent without one.",
       {},
       [](Input in) {
         if (in.status.server.state == ServerState::kNone) return Samples{};
         return Count(in.status.server.restarts);
       }},
      {"ptqwatch_events_total", kCounter, "Events of the run, by kind.", {"kind"}, Events},
      {"ptqwatch_overhead_ratio",
       kGauge,
       "Share of training time lost to the monitor since the first step.",
       {},
       [](Input in) { return One(in.status.overhead_ratio); }},
      {"ptqwatch_overhead_budget_ratio",
       kGauge,
       "Share of training time that the monitor may cost (MonitorOptions::max_overhead).",
       {},
       [](Input in) { return One(in.status.overhead_budget_ratio); }},
      {"ptqwatch_plan_level_ratio",
       kGauge,
       "Work of a snapshot with the present plan, over the work with all data.",
       {},
       [](Input in) { return One(in.status.plan_level_ratio); }},
      {"ptqwatch_memory_bytes",
       kGauge,
       "Memory that the monitor holds, by its own account.",
       {},
       [](Input in) { return Count(in.status.memory_bytes); }},
      {"ptqwatch_memory_peak_bytes",
       kGauge,
       "Peak of ptqwatch_memory_bytes.",
       {},
       [](Input in) { return Count(in.status.memory_peak_bytes); }},
      {"ptqwatch_memory_budget_bytes",
       kGauge,
       "Memory that the monitor may hold.",
       {},
       [](Input in) { return Count(in.status.memory_budget_bytes); }},
      {"ptqwatch_duty_cycle_ratio",
       kGauge,
       "Share of wall-clock time the monitor thread may work.",
       {},
       [](Input in) { return One(in.status.duty_cycle); }},
      {"ptqwatch_slice_progress_ratio",
       kGauge,
       "Share of the newest loss slice that is measured; absent before the first and if it failed.",
       {},
       SliceProgress},
      {"ptqwatch_model_parameters",
       kGauge,
       "Parameters of the model.",
       {},
       [](Input in) { return Count(in.run.parameters); }},
      {"ptqwatch_covered_parameters",
       kGauge,
       "Parameters in quantized layers.",
       {},
       [](Input in) { return Count(in.run.covered_parameters); }},
      {"ptqwatch_run_info",
       kGauge,
       "Always 1; the labels identify the run.",
       {"run_id", "attempt", "fingerprint", "device", "optimizer"},
       [](Input in) {
         return Samples{
             {{in.run.run_id, std::to_string(in.run.attempt), in.run.fingerprint, in.run.device,
               std::string(in.run.optimizer ? ToString(*in.run.optimizer) : "unknown")},
              1}};
       }},
      {"ptqwatch_build_info",
       kGauge,
       "Always 1; the version of the library.",
       {"version"},
       [](Input) {
         return Samples{{{PTQWATCH_VERSION_STRING}, 1}};
       }},
  };
}

std::vector<MetricInfo> MakeCatalog() {
  std::vector<MetricInfo> catalog;
  for (auto rows : {MeasurementMetrics, VerdictMetrics, RunMetrics}) {
    for (MetricInfo& row : rows()) catalog.push_back(std::move(row));
  }
  return catalog;
}

std::string MarkdownRow(std::string_view name, std::string_view type, std::string_view labels,
                        std::string_view help) {
  const auto cell = [](std::string_view text) {
    return StrCat(text.empty() ? "" : " ", text, " |");
  };
  std::string escaped;
  for (char c : help) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return StrCat("| `", name, "` |", cell(type), cell(labels), cell(escaped), "\n");
}

}  // namespace
}  // namespace internal

absl::Span<const MetricInfo> MetricCatalog() {
  // Leaked, because a scrape may come while static objects are being destroyed.
  static const auto* const catalog = [] {
    auto* all = new std::vector<MetricInfo>(internal::MakeCatalog());
    for (const auto& more :
         {internal::WhatIfMetrics(), internal::PredictedEndMetrics(), internal::RankMetrics()})
      all->insert(all->end(), more.begin(), more.end());
    return all;
  }();
  return *catalog;
}

std::string MetricCatalogMarkdown() {
  std::string table = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n";
  for (const MetricInfo& metric : MetricCatalog()) {
    std::string labels;
    for (std::string_view label : metric.labels) {
      labels += internal::StrCat(labels.empty() ? "" : ", ", label);
    }
    table += internal::MarkdownRow(
        metric.name, metric.type == MetricType::kCounter ? "counter" : "",
        absl::StrReplaceAll(labels, {{"method, bits, format", "{q}"}}), metric.help);
  }
  return table + internal::MarkdownRow(kStallMetricName, "histogram", "", kStallMetricHelp);
}

}  // namespace ptqwatch
