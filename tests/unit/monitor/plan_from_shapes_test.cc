#include "ptqwatch/offline/plan_from_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "monitor/cost_model.h"

namespace ptqwatch {
namespace plan_from_shapes_test {

using ::testing::HasSubstr;

// A machine on which everything takes simple times.
MachineRates Rates() {
  MachineRates rates{.product = 1e11, .activation_seconds = 0, .operator_seconds = 0};
  rates.copied_bytes = 1e10;
  rates.widths = {{.inputs = 64, .gram = 1e10, .quantize = {1e9, 1e9, 1e9, 1e9}},
                  {.inputs = 1024, .gram = 1e11, .quantize = {1e10, 1e10, 1e10, 1e10}}};
  return rates;
}

// A GPT with fused attention, as GPT-3 XL for 24 blocks of 2048.
std::vector<TensorShape> Gpt(int64_t blocks, int64_t width, int64_t vocabulary, int64_t length) {
  std::vector<TensorShape> tensors = {{"wte.weight", {vocabulary, width}},
                                      {"wpe.weight", {length, width}}};
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    tensors.push_back({block + "ln_1.weight", {width}});
    tensors.push_back({block + "attn.c_attn.weight", {3 * width, width}});
    tensors.push_back({block + "attn.c_proj.weight", {width, width}});
    tensors.push_back({block + "mlp.c_fc.weight", {4 * width, width}});
    tensors.push_back({block + "mlp.c_proj.weight", {width, 4 * width}});
  }
  return tensors;
}

PlanPart Part(const ShapePlan& plan, const std::string& name) {
  for (const PlanPart& part : plan.parts) {
    if (part.name == name) return part;
  }
  ADD_FAILURE() << "no part " << name;
  return {};
}

TEST(PlanFromShapes, CountsSecondsAndBytesOfEveryPart) {
  const ShapePlanOptions options{.sequence_tokens = 32,
                                 .batch_sequences = 2,
                                 .probe_batches = 10,
                                 .calibration_batches = 3,
                                 .curvature_sequences = 4,
                                 .adapt_plan = false};
  const auto plan = PlanFromShapes(Gpt(1, 1024, 2048, 32), options, Rates());
  ASSERT_TRUE(plan.ok()) << plan.status();
  constexpr int64_t kBlock = 12 * 1024 * 1024;
  constexpr int64_t kAll = kBlock + 2080 * 1024 + 1024;
  EXPECT_EQ(plan->parameters, kAll);
  EXPECT_EQ(plan->quantized_parameters, kBlock);
  EXPECT_EQ(plan->quantized_layers, 4);
  // The tied head is multiplied too, and the block attends to 32 tokens.
  const double forward = 64 * (2.0 * (kBlock + 2048 * 1024) + 4.0 * 1024 * 32) / 1e11;
  EXPECT_NEAR(Part(*plan, "forward passes").seconds, (10 * 5 + 3) * forward, 1e-9);
  const double squares = 3 * 1024.0 * 1024 + 4096.0 * 4096;
  EXPECT_NEAR(Part(*plan, "Gram matrices").seconds, 3 * 64 * squares / 1e11, 1e-9);
  EXPECT_EQ(Part(*plan, "Gram matrices").bytes, static_cast<int64_t>(8 * squares));
  EXPECT_EQ(Part(*plan, "staging").bytes, 4 * kAll);
  EXPECT_EQ(Part(*plan, "replica").bytes, 8 * kAll);
  EXPECT_EQ(Part(*plan, "averages of snapshots").bytes, (6 + 1) * 4 * kAll);
  EXPECT_EQ(Part(*plan, "quantized weights").bytes, 4 * 4 * kBlock);
  // Codes, weights, panels of a trace and grid of the [1024, 4096] layer, and its factor.
  EXPECT_EQ(Part(*plan, "factors and codes").bytes,
            (9 + 12) * 4096 * 1024 + 8 * 1024 * 32 + 6 * 4096 * 4096);
  const double gradient = 3.8 * forward / 2;
  EXPECT_NEAR(Part(*plan, "curvature: products").seconds, 100 * 4 * gradient, 1e-6);
  EXPECT_GT(Part(*plan, "curvature: graphs").bytes, 4 * 32 * 4 * 1024);
  EXPECT_NEAR(plan->snapshot_seconds,
              Part(*plan, "forward passes").seconds + Part(*plan, "Gram matrices").seconds +
                  Part(*plan, "factors and codes").seconds +
                  Part(*plan, "curvature: products").seconds,
              1e-9);
}

TEST(PlanFromShapes, DescribesAModelOfAThousandMillionParameters) {
  ShapePlanOptions options{.sequence_tokens = 2048, .step_seconds = 2, .every = 500};
  const auto plan = PlanFromShapes(Gpt(24, 2048, 50257, 2048), options, Rates());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(static_cast<double>(plan->parameters), 1.315e9, 1e7);
  EXPECT_EQ(Part(*plan, "replica").bytes, 8 * plan->parameters);
  // What is held at a time is bounded, whatever all Gram matrices need.
  EXPECT_LE(Part(*plan, "Gram matrices").bytes, options.max_gram_bytes);
  EXPECT_EQ(plan->report_every % 500, 0);
  EXPECT_GT(plan->report_seconds, 1);
  EXPECT_THAT(plan->Describe(),
              AllOf(HasSubstr("1315129344 parameters"), HasSubstr("in 96 layers"),
                    HasSubstr("a report every "), HasSubstr(" after its snapshot, costing ")));
  // Without a spare core the same work takes longer and costs more.
  options.spare_core = false;
  const auto slow = PlanFromShapes(Gpt(24, 2048, 50257, 2048), options, Rates());
  ASSERT_TRUE(slow.ok());
  EXPECT_GT(slow->report_every, plan->report_every);
  EXPECT_GT(slow->overhead_ratio, plan->overhead_ratio);
  EXPECT_LT(slow->overhead_ratio, 0.03);
}

TEST(PlanFromShapes, LetsProjectionsThatReadTheSameShareAGramMatrix) {
  const auto grams = [](const std::vector<std::string>& names) {
    std::vector<TensorShape> tensors;
    for (const std::string& name : names) tensors.push_back({name, {64, 64}});
    const auto plan = PlanFromShapes(tensors, {.adapt_plan = false}, Rates());
    return plan.ok() ? Part(*plan, "Gram matrices").bytes / (8 * 64 * 64) : -1;
  };
  EXPECT_EQ(grams({"a.q_proj.weight", "a.k_proj.weight", "a.v_proj.weight", "a.o_proj.weight"}), 2);
  EXPECT_EQ(grams({"a.gate_proj.weight", "a.up_proj.weight", "a.down_proj.weight"}), 2);
  EXPECT_EQ(grams({"a.q_proj.weight", "b.q_proj.weight", "q_proj", "k_proj"}), 4);
}

TEST(PlanFromShapes, LeavesOutWhatIsNotQuantized) {
  ShapePlanOptions options{.adapt_plan = false};
  options.exclude = {"*.1.*"};
  std::vector<TensorShape> tensors = Gpt(2, 64, 100, 16);
  tensors.push_back({"lm_head.weight", {100, 64}});
  const auto plan = PlanFromShapes(tensors, options, Rates());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->quantized_layers, 4);
  options.exclude = {"*"};
  const absl::Status none = PlanFromShapes(tensors, options, Rates()).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("no matrix is left to quantize"));
}

TEST(PlanFromShapes, RefusesWhatMakesNoSense) {
  const auto refusal = [](const ShapePlanOptions& options, const MachineRates& rates) {
    return std::string(PlanFromShapes(Gpt(1, 64, 100, 16), options, rates).status().message());
  };
  EXPECT_THAT(refusal({.sequence_tokens = 0}, Rates()), HasSubstr("sequence_tokens = 0"));
  EXPECT_THAT(refusal({.step_seconds = -2}, Rates()), HasSubstr("step_seconds = -2"));
  EXPECT_THAT(refusal({.quantizers = {QuantizerSpec{}}}, Rates()), HasSubstr("other quantizers"));
  const std::vector<TensorShape> huge = {{"w", {int64_t{1} << 40, int64_t{1} << 40}}};
  EXPECT_EQ(PlanFromShapes(huge, {}, Rates()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MeasureMachineRates, GivesARateForEveryQuantizer) {
  const std::vector<QuantizerSpec> quantizers = {{.method = QuantizationMethod::kRtn}};
  const auto rates = MeasureMachineRates(quantizers);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_GT(rates->product, 1e8);
  EXPECT_GT(rates->activation_seconds, 0);
  EXPECT_LT(rates->activation_seconds, 1e-6);
  for (const MachineRates::OfWidth& width : rates->widths) {
    EXPECT_GT(width.gram, 1e8);
    ASSERT_EQ(width.quantize.size(), 1u);
    EXPECT_GT(width.quantize[0], 1e7);
  }
}

TEST(GramPasses, AreAsFewAsFit) {
  using internal::PassesOver;
  EXPECT_EQ(PassesOver({100, 100, 100}, 8 * 30000).passes, 1);
  const internal::GramPasses passes = PassesOver({100, 100, 200}, 8 * 40000);
  EXPECT_EQ(passes.passes, 2);
  EXPECT_EQ(passes.largest_bytes, 8 * 40000);
  EXPECT_EQ(PassesOver({}, 1).passes, 0);
}

}  // namespace plan_from_shapes_test
}  // namespace ptqwatch
