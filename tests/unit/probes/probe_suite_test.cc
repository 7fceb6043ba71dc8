#include "probes/probe_suite.h"

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "budget/planner.h"
#include "support/fake_clock.h"
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
  ASSERT_EQ(measured->results.size(), 5u);
  EXPECT_EQ(measured->results[0].outcome.probe, "quantization");
  EXPECT_EQ(measured->results[1].outcome.probe, "curvature");
  EXPECT_EQ(measured->results[2].outcome.probe, "averaging");
  EXPECT_EQ(measured->results[3].outcome.probe, "merges");
  EXPECT_EQ(measured->results[4].outcome.probe, "noise");
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

// With one sequence a change has no scatter, but also no standard error of 0.
TEST(ProbeSuite, DoesNotTakeMaskedSequencesForPrecision) {
  Net net;
  net.options.curvature.enabled = false;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return {losses(p, b).values, b[2]};
  };
  for (Batch& batch : net.batches) batch.push_back(at::ones({100}));
  net.batches[0][2].narrow(0, 1, 99).fill_(0);
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Report report = Net::Run(**suite);
  for (const QuantizationReport& entry : report.quantization) {
    EXPECT_GE(entry.probe_tokens, 100);
    EXPECT_GT(entry.delta_stderr_nats, 0);
  }
}

TEST(ProbeSuite, PollsWhileItMeasures) {
  Net net;
  net.options.noise_relative_norm = 0;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  int polls = 0;
  ASSERT_TRUE((*suite)->Measure({}, {}, {.poll = [&] { ++polls; }}).ok());
  // Before each of four probes, at two layers and a comparison of each of two quantizers.
  EXPECT_EQ(polls, 4 + 2 * (2 + 1));
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
  // The report lists the quantizers, of which a series consists.
  const auto& quantizers = QuantizationIn(measured).quantizers;
  ASSERT_FALSE(quantizers.empty());
  EXPECT_TRUE(quantizers[0].method);
  EXPECT_EQ(quantizers[0].status, ProbeStatus::kFailed);
  EXPECT_EQ(quantizers[0].status_detail, "device lost");
  EXPECT_FALSE(measured.next);
}

TEST(ProbeSuite, SaysWhatEachProbeTakes) {
  Net net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const auto& probes = (*suite)->probes();
  ASSERT_EQ(probes.size(), 5u);
  const ProbeNeeds quantization = probes[0]->Needs(INT64_MAX);
  EXPECT_THAT(quantization.text, HasSubstr("in.weight"));
  EXPECT_GT(quantization.seconds.probe_batch, 0);
  EXPECT_GT(quantization.seconds.fixed, 0);
  EXPECT_EQ(quantization.kept_bytes, 2 * 4 * (*suite)->session().plan().covered_parameters);
  EXPECT_GT(quantization.bytes, quantization.kept_bytes + 8 * (16 * 16 + 24 * 24));
  const ProbeNeeds curvature = probes[1]->Needs(INT64_MAX);
  EXPECT_THAT(curvature.text, HasSubstr("curvature: retained_graph"));
  EXPECT_GT(curvature.bytes, 0);
  EXPECT_GT(curvature.seconds.curvature_sequence + curvature.seconds.fixed, 0);
  const std::vector<ProbeNeeds> together = (*suite)->Needs(INT64_MAX);
  ASSERT_EQ(together.size(), 5u);
  EXPECT_EQ(together[0].kept_bytes, quantization.kept_bytes);
  EXPECT_EQ(together[3].seconds.of_each, &Plan::merges);
  EXPECT_GT(together[4].seconds.probe_batch, 0);
  EXPECT_GT(together[4].seconds.fixed, 0);
  // No other probe uses the quantized weights.
  (*suite)->Disable("curvature", "off");
  EXPECT_EQ((*suite)->Needs(INT64_MAX)[0].kept_bytes, 0);
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

// A probe made by the recipe of CONTRIBUTING: works for ten seconds and keeps the quantized
// weights.
class SlowProbe final : public Probe {
 public:
  explicit SlowProbe(testing::FakeClock& clock)
      : Probe({.name = "slow", .uses = {"quantization"}, .uses_quantized_weights = true}),
        clock_(clock) {}
  ProbeNeeds Needs(int64_t /*available*/) const override { return {.text = "slow: on\n"}; }
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& /*context*/) override {
    EXPECT_FALSE(input.Earlier<QuantizationResult>()->weights.at(0).empty());
    clock_.Advance(std::chrono::seconds(10));
    return {.outcome = {"slow"}, .cost_seconds = {{"slow", 10}}};
  }

 private:
  testing::FakeClock& clock_;
};

class ToyProbeTest : public ::testing::Test {
 protected:
  ToyProbeTest() {
    net_.options.curvature.enabled = false;
    net_.options.averaging.enabled = false;
    Open();
  }
  void Open() {
    suite_ = nullptr;
    net_.subject = net_.MakeSubject();
    net_.table = *MakeTensorTable(net_.subject->LiveTensors());
    context_.clock = &clock_;
    std::vector<MakeProbe> list = AllProbes();
    list.push_back([this](const ProbeParts&) { return std::make_unique<SlowProbe>(clock_); });
    auto session = ModelSession::Open(*net_.subject, SessionOptions(net_.options));
    EXPECT_TRUE(session.ok()) << session.status();
    auto suite = ProbeSuite::Create(*std::move(session), net_.options, {}, context_, list);
    EXPECT_TRUE(suite.ok()) << suite.status();
    suite_ = *std::move(suite);
    net_.Load(*suite_);
  }

  testing::FakeClock clock_;
  Net net_;
  ExecutionContext context_;
  std::unique_ptr<ProbeSuite> suite_;
};

TEST_F(ToyProbeTest, IsMeasuredOnceTheListNamesIt) {
  EXPECT_THAT(testing::DescribeProbes(*suite_), HasSubstr("slow: on\n"));
  const auto measured = suite_->Measure({}, {}, {}, context_);
  ASSERT_TRUE(measured.ok()) << measured.status();
  const Report report = AssembleReport({}, measured->results);
  EXPECT_EQ(report.cost.at("slow"), 10);
  EXPECT_EQ(report.probe_status, ProbeStatus::kOk);
  suite_->Disable("quantization", "off");
  const auto without = suite_->Measure({}, {}, {}, context_);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->results.size(), 1u);
}

TEST_F(ToyProbeTest, IsCutShortWhenTheTimeOfASnapshotIsOver) {
  EXPECT_FALSE(suite_->Measure({}, {}, {}, context_)->cut_short);
  for (const auto& [limit, cut_short] : {std::pair(std::chrono::milliseconds(9000), true),
                                         std::pair(std::chrono::milliseconds(11000), false),
                                         std::pair(std::chrono::milliseconds::max(), false)}) {
    net_.options.max_snapshot_time = limit;
    Open();
    const auto measured = suite_->Measure({}, {}, {}, context_);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->cut_short, cut_short) << limit.count();
    EXPECT_EQ(QuantizationIn(*measured).quantizers[0].status, ProbeStatus::kOk);
  }
}

TEST_F(ToyProbeTest, IsPartOfThePlanOnceItHasTakenItsTime) {
  const auto measured = suite_->Measure({}, {}, {}, context_);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->work_seconds.at("slow"), 10);
  Planner planner({.range = {.probe_batches = 3, .calibration_batches = 3},
                   .costs = SnapshotCosts(suite_->Costs())},
                  std::nullopt);
  EXPECT_LT(planner.model().Quantization(planner.plan()), 10);
  planner.Fit(10);
  EXPECT_EQ(planner.plan().probe_batches, 3);
  const Plan plan = planner.Next(/*soon=*/100);
  const std::optional<std::string> changed =
      planner.Measured({plan, measured->work_seconds}, /*seconds=*/5);
  ASSERT_TRUE(changed);
  EXPECT_THAT(*changed, HasSubstr("a snapshot takes 10 s of work"));
  EXPECT_EQ(planner.plan().probe_batches, 1);
}

}  // namespace probe_suite_test
}  // namespace ptqwatch::internal
