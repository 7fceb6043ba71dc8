#include "ptqwatch/metric_catalog.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/config.h"
#include "support/sample_report.h"

namespace ptqwatch {
namespace metric_catalog_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::SampleLayer;
using testing::SampleQuantization;
using testing::SampleReport;

RunInfo SampleRun() {
  RunInfo run;
  run.run_id = "run-1";
  run.attempt = 2;
  run.fingerprint = "f00d";
  run.parameters = 31600;
  run.covered_parameters = 24576;
  run.device = "cpu";
  return run;
}

MonitorStatus CountedStatus() {
  MonitorStatus status = testing::SampleStatus();
  status.reports_total = 19;
  status.probe_failures_total = 2;
  status.duty_cycle = 0.05;
  status.events[static_cast<size_t>(Event::Kind::kPhaseChange)] = 3;
  return status;
}

class MetricCatalogTest : public ::testing::Test {
 protected:
  // "labels=value" of each sample of a metric.
  std::vector<std::string> Collect(std::string_view name, bool with_report = true) const {
    std::vector<std::string> shown;
    for (const MetricInfo& metric : MetricCatalog()) {
      if (metric.name != name) continue;
      for (const MetricSample& sample :
           metric.collect({run_, status_, with_report ? &report_ : nullptr})) {
        EXPECT_EQ(sample.labels.size(), metric.labels.size()) << name;
        std::string text;
        for (const std::string& label : sample.labels) text += label + ",";
        char value[40];
        snprintf(value, sizeof(value), "=%.9g", sample.value);
        shown.push_back(text + value);
      }
      return shown;
    }
    ADD_FAILURE() << "no metric " << name;
    return shown;
  }

  RunInfo run_ = SampleRun();
  MonitorStatus status_ = CountedStatus();
  AnalyzedReport report_ = SampleReport();
};

TEST_F(MetricCatalogTest, HasDistinctWellFormedNames) {
  std::set<std::string_view> names = {kStallMetricName};
  for (const MetricInfo& metric : MetricCatalog()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_THAT(std::string(metric.name), MatchesRegex("ptqwatch_[a-z][a-z0-9_]*[a-z0-9]"));
    EXPECT_FALSE(metric.help.empty()) << metric.name;
    EXPECT_EQ(metric.name.ends_with("_total"), metric.type == MetricType::kCounter) << metric.name;
    for (std::string_view label : metric.labels) {
      EXPECT_THAT(std::string(label), MatchesRegex("[a-z][a-z_]*"));
      // Scrapers set these themselves.
      EXPECT_TRUE(label != "job" && label != "instance" && label != "le") << metric.name;
    }
  }
}

TEST_F(MetricCatalogTest, TellsFormatsOfOneMethodAndWidthApart) {
  report_.report.quantization.assign(3, SampleQuantization(QuantizationMethod::kRtn, 4, 0.5));
  report_.report.quantization[0].format.reset();  // as in journals of earlier versions
  report_.report.quantization[1].format = "mxfp4";
  report_.report.quantization[1].delta_nats = 0.25;
  report_.report.quantization[2].format = "mxfp4-h32";
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats"),
              ElementsAre("rtn,4,int,=0.5", "rtn,4,mxfp4,=0.25", "rtn,4,mxfp4-h32,=0.5"));
  report_.report.quantization.assign(1, SampleQuantization(QuantizationMethod::kNf4, 4, 0.5));
  report_.report.quantization[0].format.reset();
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats"), ElementsAre("nf4,4,nf4,=0.5"));
  report_.verdict.method = QuantizationMethod::kGptq;
  report_.verdict.bits = 4;
  report_.verdict.format.reset();
  EXPECT_THAT(Collect("ptqwatch_verdict_quantizer_info"), ElementsAre("gptq,4,int,=1"));
}

TEST_F(MetricCatalogTest, HasTheStartSet) {
  std::set<std::string_view> names;
  for (const MetricInfo& metric : MetricCatalog()) names.insert(metric.name);
  for (const char* name : {"quantization_error_ratio",
                           "quantization_error_ratio_stderr",
                           "quantization_loss_delta_nats",
                           "quantization_loss_delta_nats_stderr",
                           "probe_loss_nats",
                           "probe_loss_stderr_nats",
                           "quantized_loss_nats",
                           "quantization_displacement_norm",
                           "routing_change_ratio",
                           "layer_quantization_error_ratio",
                           "quantization_coverage_ratio",
                           "probe_tokens",
                           "step",
                           "steps_total",
                           "last_step_timestamp_seconds",
                           "tokens",
                           "learning_rate",
                           "training_loss_nats",
                           "lr_phase",
                           "verdict",
                           "alert_active",
                           "snapshot_step",
                           "snapshot_timestamp_seconds",
                           "snapshots_total",
                           "reports_total",
                           "probe_failures_total",
                           "probe_duration_seconds",
                           "overhead_ratio",
                           "overhead_budget_ratio",
                           "plan_level_ratio",
                           "memory_bytes",
                           "duty_cycle_ratio",
                           "dropped_reports_total",
                           "events_total",
                           "decay_onset_step",
                           "health",
                           "build_info",
                           "run_info"}) {
    EXPECT_EQ(names.count(std::string("ptqwatch_") + name), 1u) << name;
  }
}

TEST_F(MetricCatalogTest, ShowsTheMeasuredNumbers) {
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats"),
              ElementsAre("gptq,3,int,=0.208", "rtn,4,int,=0.05"));
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats_stderr"),
              ElementsAre("gptq,3,int,=0.0104", "rtn,4,int,=0.0025"));
  EXPECT_THAT(Collect("ptqwatch_quantized_loss_nats"),
              ElementsAre("gptq,3,int,=1.958", "rtn,4,int,=1.8"));
  EXPECT_THAT(Collect("ptqwatch_quantization_coverage_ratio"),
              ElementsAre("gptq,3,int,=0.3", "rtn,4,int,=0.3"));
  EXPECT_THAT(Collect("ptqwatch_quantization_entropy"),
              ElementsAre("gptq,3,int,=2.625", "rtn,4,int,=3.625"));
  EXPECT_THAT(Collect("ptqwatch_quantization_artifact_bytes"),
              ElementsAre("gptq,3,int,=12000000", "rtn,4,int,=16000000"));
  EXPECT_THAT(Collect("ptqwatch_probe_bytes_per_token"), ElementsAre("=3.25"));
  EXPECT_THAT(Collect("ptqwatch_layer_quantization_error_ratio"),
              ElementsAre("blocks.0.weight,gptq,3,int,=0.02", "blocks.1.weight,gptq,3,int,=0.03",
                          "blocks.0.weight,rtn,4,int,=0.02", "blocks.1.weight,rtn,4,int,=0.03"));
  EXPECT_THAT(Collect("ptqwatch_probe_loss_nats"), ElementsAre("=1.75"));
  EXPECT_THAT(Collect("ptqwatch_probe_tokens"), ElementsAre("=65536"));
  EXPECT_THAT(Collect("ptqwatch_snapshot_step"), ElementsAre("=16000"));
  EXPECT_THAT(Collect("ptqwatch_decay_onset_step"), ElementsAre("=12801"));
  EXPECT_THAT(Collect("ptqwatch_step"), ElementsAre("=16010"));
  EXPECT_THAT(Collect("ptqwatch_steps_total"), ElementsAre("=4010"));
  EXPECT_THAT(Collect("ptqwatch_tokens"), ElementsAre("=8200000"));
  EXPECT_THAT(Collect("ptqwatch_learning_rate"), ElementsAre("=0.0025"));
  EXPECT_THAT(Collect("ptqwatch_overhead_ratio"), ElementsAre("=0.004"));
  EXPECT_THAT(Collect("ptqwatch_run_info"), ElementsAre("run-1,2,f00d,cpu,unknown,=1"));
  run_.optimizer = OptimizerKind::kAdamW;
  EXPECT_THAT(Collect("ptqwatch_run_info"), ElementsAre("run-1,2,f00d,cpu,adamw,=1"));
  EXPECT_THAT(Collect("ptqwatch_build_info"), ElementsAre(PTQWATCH_VERSION_STRING ",=1"));
  EXPECT_THAT(Collect("ptqwatch_dropped_reports_total"), ElementsAre("journal,queue_full,=4"));
  // The stall belongs to the training thread and has a histogram.
  EXPECT_THAT(Collect("ptqwatch_probe_duration_seconds"), ElementsAre("gptq,=1.25", "probe,=0.5"));
}

TEST_F(MetricCatalogTest, ShowsTheRanks) {
  for (const char* name : {"ptqwatch_replicas_diverged", "ptqwatch_replicas_diverged_step",
                           "ptqwatch_rank_healthy", "ptqwatch_rank_snapshot_step"}) {
    EXPECT_THAT(Collect(name), IsEmpty()) << name;
  }
  status_.ranks = {{.rank = 0, .health = Health::kOk, .snapshot_step = 900, .reports_total = 9},
                   {.rank = 1, .health = Health::kDegraded, .reports_total = 8}};
  status_.replicas.compared_step = 900;
  EXPECT_THAT(Collect("ptqwatch_rank_healthy"), ElementsAre("0,=1", "1,=0"));
  EXPECT_THAT(Collect("ptqwatch_rank_snapshot_step"), ElementsAre("0,=900"));
  EXPECT_THAT(Collect("ptqwatch_rank_reports_total"), ElementsAre("0,=9", "1,=8"));
  EXPECT_THAT(Collect("ptqwatch_replicas_diverged"), ElementsAre("=0"));
  EXPECT_THAT(Collect("ptqwatch_replicas_diverged_step"), IsEmpty());
  status_.replicas = {.compared_step = 900,
                      .diverged = true,
                      .diverged_step = 800,
                      .parameter = "head",
                      .minority = "1"};
  EXPECT_THAT(Collect("ptqwatch_replicas_diverged"), ElementsAre("=1"));
  EXPECT_THAT(Collect("ptqwatch_replicas_diverged_step"), ElementsAre("head,1,=800"));
}

TEST_F(MetricCatalogTest, ShowsWhatAveragesWouldGive) {
  AveragingReport window = report_.report.averaging.at(0);
  window.kind = AveragingKind::kWindow;
  window.window = 6;
  window.snapshots = 4;
  window.loss_nats = 1.5;
  report_.report.averaging.push_back(window);
  EXPECT_THAT(Collect("ptqwatch_averaged_loss_nats"), ElementsAre("ema,=1.66", "6,=1.5"));
  EXPECT_THAT(Collect("ptqwatch_averaged_quantized_loss_nats"),
              ElementsAre("ema,gptq,3,int,=1.814", "6,gptq,3,int,=1.814"));
  EXPECT_THAT(Collect("ptqwatch_averaged_snapshots"), ElementsAre("ema,=5", "6,=4"));
  report_.report.averaging[0].status = ProbeStatus::kOutOfTime;
  report_.report.averaging[1].loss_nats.reset();
  report_.report.averaging[1].quantization[0].status = ProbeStatus::kFailed;
  EXPECT_THAT(Collect("ptqwatch_averaged_loss_nats"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_averaged_quantized_loss_nats"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_averaged_snapshots"), ElementsAre("6,=4"));
  report_.report.averaging[1].kind = AveragingKind::kMerge;
  EXPECT_THAT(Collect("ptqwatch_averaged_snapshots"), ElementsAre("6_cosine,=4"));
}

TEST_F(MetricCatalogTest, ShowsAccuracyIfItWasMeasured) {
  EXPECT_THAT(Collect("ptqwatch_probe_accuracy_ratio"), ElementsAre("=0.45"));
  EXPECT_THAT(Collect("ptqwatch_quantized_accuracy_ratio"),
              ElementsAre("gptq,3,int,=0.41", "rtn,4,int,=0.41"));
  EXPECT_THAT(Collect("ptqwatch_accuracy_degradation_ratio"),
              ElementsAre("gptq,3,int,=0.08", "rtn,4,int,=0.08"));
  report_.report.probe_accuracy_ratio.reset();
  report_.report.quantization[0].accuracy_ratio.reset();
  report_.report.quantization[1].accuracy_degradation_ratio.reset();
  EXPECT_THAT(Collect("ptqwatch_probe_accuracy_ratio"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_quantized_accuracy_ratio"), ElementsAre("rtn,4,int,=0.41"));
  EXPECT_THAT(Collect("ptqwatch_accuracy_degradation_ratio"), ElementsAre("gptq,3,int,=0.08"));
}

TEST_F(MetricCatalogTest, ShowsTasksOfAllModels) {
  const std::string full = "sciq,acc_norm,,,,=0.41";
  EXPECT_THAT(Collect("ptqwatch_task_value"),
              ElementsAre(full, "sciq,acc_norm,gptq,3,int,=0.41", "sciq,acc_norm,rtn,4,int,=0.41"));
  report_.report.quantization[0].status = ProbeStatus::kFailed;
  report_.report.quantization[1].tasks[0].value.reset();
  EXPECT_THAT(Collect("ptqwatch_task_value"), ElementsAre(full));
  report_.report.probe_status = ProbeStatus::kFailed;
  EXPECT_THAT(Collect("ptqwatch_task_value"), IsEmpty());
}

TEST_F(MetricCatalogTest, ShowsMixturesByTheNumberOfRaisedLayers) {
  MixedPrecisionReport more = report_.report.mixed_precision.at(0);
  more.raised_layers.push_back("blocks.0.weight");
  more.delta_nats = 0.125;
  report_.report.mixed_precision.push_back(more);
  MixedPrecisionReport failed = more;
  failed.raised_layers.push_back("blocks.2.weight");
  failed.status = ProbeStatus::kFailed;
  report_.report.mixed_precision.push_back(failed);
  constexpr char kName[] = "ptqwatch_mixed_precision_loss_delta_nats";
  EXPECT_THAT(Collect(kName), ElementsAre("gptq,3,int,4,1,=0.16", "gptq,3,int,4,2,=0.125"));
}

TEST_F(MetricCatalogTest, ShowsTheErrorOnAllProbeSetsIfAllWereMeasured) {
  EXPECT_THAT(Collect("ptqwatch_pooled_error_ratio"), ElementsAre("gptq,3,int,=0.117"));
  EXPECT_THAT(Collect("ptqwatch_pooled_error_ratio_stderr"), ElementsAre("gptq,3,int,=0.003"));
  report_.report.pooled->status = ProbeStatus::kOtherRank;
  EXPECT_THAT(Collect("ptqwatch_pooled_error_ratio"), IsEmpty());
  report_.report.pooled.reset();
  EXPECT_THAT(Collect("ptqwatch_pooled_error_ratio_stderr"), IsEmpty());
}

TEST_F(MetricCatalogTest, ShowsTheLossUnderNoiseIfItWasMeasured) {
  EXPECT_THAT(Collect("ptqwatch_noise_loss_delta_nats"), ElementsAre("=0.031"));
  EXPECT_THAT(Collect("ptqwatch_noise_loss_delta_nats_stderr"), ElementsAre("=0.0015"));
  report_.report.noise->status = ProbeStatus::kFailed;
  EXPECT_THAT(Collect("ptqwatch_noise_loss_delta_nats"), IsEmpty());
  report_.report.noise.reset();
  EXPECT_THAT(Collect("ptqwatch_noise_loss_delta_nats_stderr"), IsEmpty());
}

TEST_F(MetricCatalogTest, ShowsTheIntervalOfTheTopEigenvalue) {
  EXPECT_THAT(Collect("ptqwatch_hessian_top_eigenvalue"), ElementsAre("=9.25"));
  EXPECT_THAT(Collect("ptqwatch_hessian_top_eigenvalue_upper"), ElementsAre("=9.75"));
  report_.report.curvature->top_eigenvalue_upper.reset();
  EXPECT_THAT(Collect("ptqwatch_hessian_top_eigenvalue_upper"), IsEmpty());
}

TEST_F(MetricCatalogTest, ShowsEveryStateAsZeroOrOne) {
  EXPECT_THAT(Collect("ptqwatch_lr_phase"), ElementsAre("unknown,=0", "warmup,=0", "stable,=0",
                                                        "decay,=1", "slow_decay,=0", "rewarm,=0"));
  EXPECT_THAT(Collect("ptqwatch_verdict"),
              ElementsAre("unknown,=0", "warming_up,=0", "healthy,=0", "drifting,=0",
                          "decay_degradation,=1", "spike,=0", "recovering,=0", "unclear,=0"));
  EXPECT_THAT(Collect("ptqwatch_alert_active"), ElementsAre("decay_degradation,=1", "spike,=0"));
  EXPECT_THAT(Collect("ptqwatch_health"), ElementsAre("starting,=0", "ok,=1", "degraded,=0",
                                                      "stopped,=0", "inert,=0", "silent,=0"));
  EXPECT_THAT(Collect("ptqwatch_snapshots_total"),
              ElementsAre("taken,=20", "skipped_busy,=3", "skipped_mismatch,=0", "failed,=1",
                          "skipped_paused,=0", "skipped_resting,=0", "skipped_concurrent,=0",
                          "incomplete,=0"));
  EXPECT_THAT(Collect("ptqwatch_events_total"),
              ::testing::IsSupersetOf({"phase_change,=3", "slice,=0"}));
}

TEST_F(MetricCatalogTest, ShowsTheNumbersBehindTheVerdict) {
  EXPECT_THAT(Collect("ptqwatch_verdict_severity_nats"), ElementsAre("=0.109"));
  EXPECT_THAT(Collect("ptqwatch_verdict_severity_ratio"), ElementsAre("=2.1"));
  EXPECT_THAT(Collect("ptqwatch_verdict_sigmas"), ElementsAre("=9.5"));
  EXPECT_THAT(Collect("ptqwatch_verdict_alarm_sigmas"), ElementsAre("=3.5"));
  EXPECT_THAT(Collect("ptqwatch_verdict_onset_step"), ElementsAre("=14400"));
  EXPECT_THAT(Collect("ptqwatch_loss_converged_step"), ElementsAre("=9600"));
  DecayOutlook other = report_.verdict.outlook[0];
  other.gain_kept_ratio = 0.9;  // of another group size: the labels cannot tell
  report_.verdict.outlook.push_back(other);
  EXPECT_THAT(Collect("ptqwatch_decay_gain_kept_ratio"), ElementsAre("gptq,3,int,=0.2"));
  EXPECT_THAT(Collect("ptqwatch_decay_gain_kept_ratio_stderr"), ElementsAre("gptq,3,int,=0.05"));
  EXPECT_THAT(Collect("ptqwatch_decay_minimum_loss_nats"), ElementsAre("gptq,3,int,=1.7"));
  EXPECT_THAT(Collect("ptqwatch_decay_minimum_step"), ElementsAre("gptq,3,int,=14000"));
  EXPECT_THAT(Collect("ptqwatch_verdict_severity_low_nats"), ElementsAre("=0.08"));
  EXPECT_THAT(Collect("ptqwatch_verdict_severity_high_nats"), ElementsAre("=0.14"));
  EXPECT_THAT(Collect("ptqwatch_verdict_quantizer_info"), ElementsAre("gptq,3,int,=1"));
  EXPECT_THAT(Collect("ptqwatch_verdict_evidence_sigmas"), ElementsAre("loss_delta_gptq3,=8.5"));
  EXPECT_THAT(Collect("ptqwatch_verdict_evidence_ratio"), ElementsAre("loss_delta_gptq3,=2.1"));

  report_.verdict = {};
  report_.verdict.sigmas = std::nan("");
  for (const char* name :
       {"verdict_severity_nats", "verdict_severity_ratio", "verdict_sigmas", "verdict_alarm_sigmas",
        "verdict_onset_step", "decay_gain_kept_ratio", "verdict_quantizer_info",
        "verdict_evidence_sigmas", "decay_minimum_loss_nats", "decay_minimum_step"}) {
    EXPECT_THAT(Collect(std::string("ptqwatch_") + name), IsEmpty()) << name;
  }
  EXPECT_THAT(Collect("ptqwatch_alert_active"), ElementsAre("decay_degradation,=0", "spike,=0"));
}

TEST_F(MetricCatalogTest, CountsWhatWasNotFinite) {
  EXPECT_THAT(Collect("ptqwatch_nonfinite_measurements"), ElementsAre("=0"));
  report_.report.probe_status = ProbeStatus::kNonFinite;
  report_.report.quantization[0].status = ProbeStatus::kNonFinite;
  report_.report.quantization[1].status = ProbeStatus::kFailed;
  report_.report.curvature->status = ProbeStatus::kNonFinite;
  EXPECT_THAT(Collect("ptqwatch_nonfinite_measurements"), ElementsAre("=3"));
}

TEST_F(MetricCatalogTest, LeavesOutEverythingOfAReportBeforeTheFirst) {
  status_ = {};
  std::set<std::string_view> shown;
  for (const MetricInfo& metric : MetricCatalog()) {
    if (!metric.collect({run_, status_, nullptr}).empty()) shown.insert(metric.name);
  }
  EXPECT_THAT(shown,
              ElementsAre("ptqwatch_build_info", "ptqwatch_covered_parameters",
                          "ptqwatch_duty_cycle_ratio", "ptqwatch_events_total", "ptqwatch_health",
                          "ptqwatch_lr_phase", "ptqwatch_memory_budget_bytes",
                          "ptqwatch_memory_bytes", "ptqwatch_memory_peak_bytes",
                          "ptqwatch_model_parameters", "ptqwatch_overhead_budget_ratio",
                          "ptqwatch_plan_level_ratio", "ptqwatch_probe_failures_total",
                          "ptqwatch_reports_total", "ptqwatch_run_info", "ptqwatch_snapshots_total",
                          "ptqwatch_state_write_failures_total", "ptqwatch_steps_total"));
  EXPECT_THAT(Collect("ptqwatch_snapshots_total", false),
              ElementsAre("taken,=0", "skipped_busy,=0", "skipped_mismatch,=0", "failed,=0",
                          "skipped_paused,=0", "skipped_resting,=0", "skipped_concurrent,=0",
                          "incomplete,=0"));
}

TEST_F(MetricCatalogTest, CountsStartsOfTheServerBesideTheRun) {
  EXPECT_THAT(Collect("ptqwatch_server_restarts_total"), IsEmpty());
  status_.server = {.state = ServerState::kServing, .restarts = 3};
  EXPECT_THAT(Collect("ptqwatch_server_restarts_total"), ElementsAre("=3"));
}

TEST_F(MetricCatalogTest, ShowsHowFarASliceIs) {
  constexpr char kName[] = "ptqwatch_slice_progress_ratio";
  EXPECT_THAT(Collect(kName), IsEmpty());
  status_.slice.state = SliceState::kWaitingForSecond;
  EXPECT_THAT(Collect(kName), ElementsAre("=0"));
  status_.slice.state = SliceState::kMeasuring;
  status_.slice.points_done = 111;
  status_.slice.points_all = 444;
  EXPECT_THAT(Collect(kName), ElementsAre("=0.25"));
  status_.slice.state = SliceState::kDone;
  EXPECT_THAT(Collect(kName), ElementsAre("=1"));
  status_.slice.state = SliceState::kFailed;
  EXPECT_THAT(Collect(kName), IsEmpty());
}

TEST_F(MetricCatalogTest, LeavesOutWhatAFailedProbeMayHaveLeftBehind) {
  report_.report.probe_status = ProbeStatus::kOutOfTime;
  report_.report.quantization[0].status = ProbeStatus::kFailed;
  EXPECT_THAT(Collect("ptqwatch_probe_loss_nats"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_probe_loss_stderr_nats"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_probe_tokens"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_probe_bytes_per_token"), IsEmpty());
  for (const char* name :
       {"quantization_error_ratio", "quantization_error_ratio_stderr",
        "quantization_loss_delta_nats", "quantization_loss_delta_nats_stderr",
        "quantized_loss_nats", "quantization_displacement_norm", "routing_change_ratio",
        "quantization_coverage_ratio", "quantization_entropy", "quantization_artifact_bytes"}) {
    const std::vector<std::string> samples = Collect(std::string("ptqwatch_") + name);
    ASSERT_EQ(samples.size(), 1u) << name;
    EXPECT_THAT(samples[0], HasSubstr("rtn,4,int,=")) << name;
  }
  EXPECT_EQ(Collect("ptqwatch_layer_quantization_error_ratio").size(), 2u);
  EXPECT_THAT(Collect("ptqwatch_snapshot_step"), ElementsAre("=16000"));
}

TEST_F(MetricCatalogTest, LeavesOutNonFiniteNumbers) {
  const double nan = std::nan("");
  report_.report.quantization[0].delta_nats = nan;
  report_.report.quantization[0].coverage_ratio = nan;
  report_.report.quantization[0].layers[0].output_error_ratio =
      std::numeric_limits<double>::infinity();
  report_.report.probe_loss_nats = nan;
  report_.report.cost["gptq"] = nan;
  status_.learning_rate = nan;
  status_.training_loss_nats = nan;
  status_.overhead_ratio.reset();
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats"), ElementsAre("rtn,4,int,=0.05"));
  EXPECT_THAT(Collect("ptqwatch_quantization_coverage_ratio"), ElementsAre("rtn,4,int,=0.3"));
  EXPECT_EQ(Collect("ptqwatch_layer_quantization_error_ratio").size(), 3u);
  EXPECT_THAT(Collect("ptqwatch_probe_loss_nats"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_probe_duration_seconds"), ElementsAre("probe,=0.5"));
  EXPECT_THAT(Collect("ptqwatch_learning_rate"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_training_loss_nats"), IsEmpty());
  EXPECT_THAT(Collect("ptqwatch_overhead_ratio"), IsEmpty());
}

TEST_F(MetricCatalogTest, ShowsTheFirstOfTwoQuantizersWithTheSameLabels) {
  QuantizationReport other = SampleQuantization(QuantizationMethod::kGptq, 3, 0.5);
  other.group_size = 32;
  report_.report.quantization.push_back(other);
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats"),
              ElementsAre("gptq,3,int,=0.208", "rtn,4,int,=0.05"));
  EXPECT_EQ(Collect("ptqwatch_layer_quantization_error_ratio").size(), 4u);

  // If the first one failed, the other one must not slip in under its labels.
  report_.report.quantization[0].status = ProbeStatus::kFailed;
  EXPECT_THAT(Collect("ptqwatch_quantization_loss_delta_nats"), ElementsAre("rtn,4,int,=0.05"));
}

TEST_F(MetricCatalogTest, ShowsALayerNameOnce) {
  report_.report.quantization.resize(1);
  report_.report.quantization[0].layers = {SampleLayer("w", 0.1), SampleLayer("w", 0.2)};
  EXPECT_THAT(Collect("ptqwatch_layer_quantization_error_ratio"), ElementsAre("w,gptq,3,int,=0.1"));
}

TEST_F(MetricCatalogTest, WritesAMarkdownRowForEachMetric) {
  const std::string table = MetricCatalogMarkdown();
  for (const MetricInfo& metric : MetricCatalog()) {
    EXPECT_THAT(table, HasSubstr("| `" + std::string(metric.name) + "` | "));
  }
  EXPECT_THAT(table, HasSubstr("| `ptqwatch_quantization_error_ratio` | | {q} |"));
  EXPECT_THAT(table, HasSubstr("| `ptqwatch_steps_total` | counter | |"));
  EXPECT_THAT(table, HasSubstr("| `ptqwatch_training_stall_seconds` | histogram | |"));
  EXPECT_EQ(static_cast<size_t>(std::count(table.begin(), table.end(), '\n')),
            MetricCatalog().size() + 3);
}

}  // namespace metric_catalog_test
}  // namespace ptqwatch
