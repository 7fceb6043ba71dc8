#include "probes/assemble_report.h"

#include <gmock/gmock.h>

#include <utility>
#include <vector>

namespace ptqwatch::internal {
namespace assemble_report_test {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

ProbeResult Quantization() {
  QuantizationResult result{.status = ProbeStatus::kOk, .loss_nats = 2.5, .tokens = 640};
  for (int bits : {3, 4}) {
    QuantizationReport& report = result.quantizers.emplace_back();
    report.method = QuantizationMethod::kGptq;
    report.bits = bits;
    report.delta_nats = 1.0 / bits;
    for (const char* name : {"in", "out"}) {
      LayerQuantization layer;
      layer.name = name;
      report.layers.push_back(layer);
    }
  }
  return {.cost_seconds = {{"capture", 1}}, .value = std::move(result)};
}

ProbeResult Curvature() {
  CurvatureResult result;
  result.report.status = ProbeStatus::kOk;
  result.report.trace = 7;
  result.errors = {std::nullopt, ErrorCurvature{.predicted_delta_nats = 0.3,
                                                .delta_nats = 0.25,
                                                .gradient_term_nats = 0.1,
                                                .curvature_term_nats = 0.2,
                                                .loss_along = {LossAlong()},
                                                .layers = {{"out", 0.1, 0.2}, {"norm", 9, 9}}}};
  return {.cost_seconds = {{"curvature_trace", 2}}, .value = std::move(result)};
}

TEST(AssembleReport, TakesAccuracyAveragesAndMixtures) {
  ProbeResult quantization = Quantization();
  auto& result = std::get<QuantizationResult>(quantization.value);
  result.accuracy_ratio = 0.5;
  result.accuracy_stderr = 0.25;
  AveragingReport average;
  average.snapshots = 3;
  MixedPrecisionReport mixture;
  mixture.raised_bits = 4;
  const std::vector<ProbeResult> results = {std::move(quantization),
                                            {.value = AveragingResult{.averages = {average}}},
                                            {.value = MixedPrecisionResult{.mixtures = {mixture}}}};
  const Report report = AssembleReport({}, results);
  EXPECT_EQ(report.probe_accuracy_ratio, 0.5);
  EXPECT_EQ(report.probe_accuracy_stderr, 0.25);
  EXPECT_EQ(report.averaging, std::vector{average});
  EXPECT_EQ(report.mixed_precision, std::vector{mixture});
}

TEST(AssembleReport, PutsTheHeaderAboveWhatWasMeasured) {
  ReportHeader header{.run_id = "run",
                      .attempt = 2,
                      .fingerprint = "f00d",
                      .sequence = 9,
                      .probe_state_sequence = 8,
                      .stall_seconds = 0.25};
  header.snapshot.info = {.step = 100, .learning_rate = 1e-3, .tokens = 77, .loss = 2.0};
  header.snapshot.trigger = SnapshotTrigger::kRequest;
  header.snapshot.unix_seconds = 1234;
  header.snapshot.lr.phase = LrPhase::kDecay;
  header.snapshot.lr.decay_onset_step = 90;
  header.snapshot.lr.points[0] = {90, 2e-3};
  header.snapshot.lr.num_points = 1;
  const Report report = AssembleReport(header, {});
  EXPECT_EQ(report.run_id, "run");
  EXPECT_EQ(report.attempt, 2);
  EXPECT_EQ(report.fingerprint, "f00d");
  EXPECT_EQ(report.sequence, 9);
  EXPECT_EQ(report.probe_state_sequence, 8);
  EXPECT_EQ(report.step, 100);
  EXPECT_EQ(report.learning_rate, 1e-3);
  EXPECT_EQ(report.tokens, 77);
  EXPECT_EQ(report.training_loss_nats, 2.0);
  EXPECT_EQ(report.trigger, SnapshotTrigger::kRequest);
  EXPECT_EQ(report.snapshot_time_unix_seconds, 1234);
  EXPECT_EQ(report.lr_phase, LrPhase::kDecay);
  EXPECT_EQ(report.decay_onset_step, 90);
  ASSERT_EQ(report.lr_change_points.size(), 1u);
  EXPECT_EQ(report.lr_change_points[0], (LrChangePoint{90, 2e-3}));
  EXPECT_THAT(report.cost, UnorderedElementsAre(Pair("stall", 0.25)));
  EXPECT_EQ(report.probe_status, ProbeStatus::kUnknown);
  EXPECT_TRUE(report.quantization.empty());
  EXPECT_FALSE(report.curvature);
}

TEST(AssembleReport, JoinsErrorCurvatureToItsQuantizerAndLayers) {
  const ProbeResult results[] = {Quantization(), Curvature()};
  const Report report = AssembleReport({}, results);
  EXPECT_EQ(report.probe_status, ProbeStatus::kOk);
  EXPECT_EQ(report.probe_loss_nats, 2.5);
  EXPECT_EQ(report.probe_tokens, 640);
  EXPECT_EQ(report.curvature->trace, 7);
  ASSERT_EQ(report.quantization.size(), 2u);
  EXPECT_FALSE(report.quantization[0].predicted_delta_nats);
  EXPECT_FALSE(report.quantization[0].layers[1].curvature_term_nats);
  const QuantizationReport& predicted = report.quantization[1];
  EXPECT_EQ(predicted.predicted_delta_nats, 0.3);
  EXPECT_EQ(predicted.curvature_batch_delta_nats, 0.25);
  EXPECT_EQ(predicted.delta_nats, 0.25);
  ASSERT_EQ(predicted.loss_along.size(), 1u);
  EXPECT_FALSE(predicted.layers[0].gradient_term_nats);
  EXPECT_EQ(predicted.layers[1].gradient_term_nats, 0.1);
  EXPECT_EQ(predicted.layers[1].curvature_term_nats, 0.2);
  EXPECT_THAT(report.cost, UnorderedElementsAre(Pair("stall", 0.0), Pair("capture", 1.0),
                                                Pair("curvature_trace", 2.0)));
}

TEST(AssembleReport, CurvatureStandsAloneIfNothingIsQuantized) {
  const ProbeResult results[] = {Curvature()};
  const Report report = AssembleReport({}, results);
  EXPECT_EQ(report.curvature->trace, 7);
  EXPECT_TRUE(report.quantization.empty());
}

}  // namespace assemble_report_test
}  // namespace ptqwatch::internal
