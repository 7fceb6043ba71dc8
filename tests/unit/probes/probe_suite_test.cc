#include "probes/probe_suite.h"

#include <gmock/gmock.h>

#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace probe_suite_test {

using ::testing::HasSubstr;
using Net = testing::TanhNet;

const QuantizationResult& QuantizationIn(const Measured& measured) {
  return std::get<QuantizationResult>(measured.results.at(0).value);
}

ProbeState Fourth() {
  ProbeState state;
  state.sequence = 4;
  return state;
}

TEST(ProbeSuite, GivesAResultOfEachProbeAndTheStateForTheNextSnapshot) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const auto measured = (*suite)->Measure({.sequence = 5}, Fourth());
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->results.size(), 3u);
  EXPECT_EQ(measured->results[0].outcome.probe, "quantization");
  EXPECT_EQ(measured->results[1].outcome.probe, "curvature");
  EXPECT_EQ(measured->results[2].outcome.probe, "averaging");
  for (const ProbeResult& result : measured->results) {
    EXPECT_EQ(result.outcome.kind, ProbeOutcome::Kind::kOk) << result.outcome.detail;
  }
  EXPECT_EQ(QuantizationIn(*measured).weights.size(), 2u);
  EXPECT_EQ(measured->probe_state_sequence, 4);
  ASSERT_TRUE(measured->next);
  EXPECT_EQ(measured->next->sequence, 5);
  EXPECT_TRUE(measured->next->vectors.contains("top.0"));
}

TEST(ProbeSuite, DoesNotRunWhatNeedsAProbeThatIsSwitchedOff) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  (*suite)->Disable("quantization", "switched off after 3 failures in a row");
  const auto measured = (*suite)->Measure({.sequence = 5}, Fourth());
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->results.size(), 1u);
  EXPECT_EQ(measured->results[0].outcome.kind, ProbeOutcome::Kind::kDisabled);
  EXPECT_EQ(QuantizationIn(*measured).status, ProbeStatus::kDisabled);
  EXPECT_EQ(QuantizationIn(*measured).detail, "switched off after 3 failures in a row");
  EXPECT_EQ(measured->probe_state_sequence, 0);
  EXPECT_FALSE(measured->next);
}

TEST(ProbeSuite, PollsWhileItMeasures) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  int polls = 0;
  ASSERT_TRUE((*suite)->Measure({}, {}, {.poll = [&] { ++polls; }}).ok());
  // Before each of three probes, at two layers and a comparison of each of two quantizers.
  EXPECT_EQ(polls, 3 + 2 * (2 + 1));
}

TEST(ProbeSuite, IsCancelledWithItsContext) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ((*suite)->Measure({}, {}, {}, context).status().code(), absl::StatusCode::kCancelled);
}

TEST(ProbeSuite, ASnapshotThatCannotBeLoadedIsAFailureOfTheFirstProbe) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Measured measured = (*suite)->NotMeasured(absl::InternalError("device lost"));
  ASSERT_EQ(measured.results.size(), 1u);
  EXPECT_EQ(measured.results[0].outcome.kind, ProbeOutcome::Kind::kFailed);
  EXPECT_EQ(QuantizationIn(measured).detail, "device lost");
  EXPECT_FALSE(measured.next);
}

TEST(ProbeSuite, SaysWhatEachProbeTakes) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const auto& probes = (*suite)->probes();
  ASSERT_EQ(probes.size(), 3u);
  const ProbeDescription quantization = probes[0]->Describe(INT64_MAX);
  EXPECT_THAT(quantization.text, HasSubstr("in.weight"));
  EXPECT_GT((*suite)->quantization().probe_batch_seconds(), 0);
  EXPECT_EQ(quantization.kept_bytes, 2 * 4 * (*suite)->session().plan().covered_parameters);
  EXPECT_GT(quantization.bytes, quantization.kept_bytes + 8 * (16 * 16 + 24 * 24));
  const ProbeDescription curvature = probes[1]->Describe(INT64_MAX);
  EXPECT_THAT(curvature.text, HasSubstr("curvature: retained_graph"));
  EXPECT_GT(curvature.bytes, 0);
  const std::vector<ProbeDescription> together = (*suite)->Describe(INT64_MAX);
  ASSERT_EQ(together.size(), 3u);
  EXPECT_EQ(together[0].kept_bytes, quantization.kept_bytes);
  // Nobody else uses the quantized weights.
  (*suite)->Disable("curvature", "off");
  EXPECT_EQ((*suite)->Describe(INT64_MAX)[0].kept_bytes, 0);
}

TEST(ProbeSuite, MeasuresWithWhatThePlanSays) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Plan plan{.probe_batches = 1,
                  .calibration_batches = 1,
                  .curvature_sequences = 20,
                  .curvature_every = 2};
  const Report report = testing::MeasureReport(**suite, nullptr, {.plan = plan});
  EXPECT_EQ(report.plan, plan);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_EQ(report.curvature->batch_tokens, 20);
  for (const QuantizationReport& entry : report.quantization) EXPECT_EQ(entry.probe_tokens, 100);
  // The same again, and then all.
  const Report again = testing::MeasureReport(**suite, nullptr, {.plan = plan});
  EXPECT_EQ(again.curvature->trace, report.curvature->trace);
  EXPECT_EQ(testing::MeasureReport(**suite).curvature->batch_tokens, 300);
}

TEST(ProbeSuite, KeepsWhatAProbeLeftWhileItIsNotDue) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  ProbeState state;
  testing::MeasureReport(**suite, &state, {.sequence = 1});
  const size_t vectors = state.vectors.size();
  ASSERT_GT(vectors, 0u);
  const Plan plan{.probe_batches = 1, .calibration_batches = 1, .curvature_every = 2};
  const Report report = testing::MeasureReport(**suite, &state, {.sequence = 2, .plan = plan});
  EXPECT_FALSE(report.curvature);
  EXPECT_FALSE(report.quantization[0].predicted_delta_nats);
  EXPECT_EQ(state.vectors.size(), vectors);
  EXPECT_EQ(state.sequence, 2);
}

}  // namespace probe_suite_test
}  // namespace ptqwatch::internal
