#include "capture/activation_capture.h"

#include <gmock/gmock.h>

#include <map>

#include "ATen/TensorOperators.h"
#include "ATen/ops/addmm.h"
#include "ATen/ops/conv1d.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/relu.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace activation_capture_test {

using ::testing::HasSubstr;

TEST(ActivationCapture, SeesEveryWayToWriteAProductInBothOrientations) {
  Fixture fixture({{"linear", Random({6, 6}, 3)},
                   {"matmul", Random({6, 6}, 4)},
                   {"addmm", Random({6, 6}, 5)},
                   {"mm_t", Random({6, 6}, 6)},
                   {"left", Random({5, 6}, 7)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor x = at::linear(b[0], w.at("linear"));
                    x = at::matmul(at::relu(x), w.at("matmul"));
                    at::Tensor flat = x.reshape({-1, 6});
                    flat = at::addmm(at::ones({6}), at::relu(flat), w.at("addmm"));
                    flat = at::mm(at::relu(flat), w.at("mm_t").t());
                    flat = at::mm(w.at("left"), at::relu(flat).t()).t();
                    return flat.reshape({3, 4, 5}).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 5u);
  std::map<std::string, bool> transposed;
  for (const CoveredLayer& layer : plan.layers) transposed[layer.name] = layer.transposed;
  EXPECT_FALSE(transposed["linear"]);
  EXPECT_TRUE(transposed["matmul"]);
  EXPECT_TRUE(transposed["addmm"]);
  EXPECT_FALSE(transposed["mm_t"]);
  EXPECT_FALSE(transposed["left"]);
  EXPECT_EQ(plan.layers[4].outputs, 5);
  EXPECT_EQ(plan.layers[4].inputs, 6);
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  ExpectGram(grams[static_cast<size_t>(plan.layers[0].gram)],
             NaiveGram({fixture.batches[0][0], fixture.batches[1][0]}));
  EXPECT_EQ(grams[0].tokens, 24);
  // The last one's inputs, recomputed from the replica's weights.
  std::vector<at::Tensor> inputs;
  for (const Batch& batch : fixture.batches) {
    const auto w = [&](int i) { return fixture.replica->loaded(i); };
    at::Tensor x = at::relu(at::linear(batch[0], w(0)));
    x = at::relu(at::matmul(x, w(1))).reshape({-1, 6});
    x = at::relu(at::addmm(at::ones({6}), x, w(2)));
    inputs.push_back(at::relu(at::mm(x, w(3).t())));
  }
  ExpectGram(grams[static_cast<size_t>(plan.layers[4].gram)], NaiveGram(inputs));
}

TEST(ActivationCapture, KeepsOneGramForLayersWithTheSameInput) {
  Fixture fixture({{"q", Random({6, 6}, 3)},
                   {"k", Random({6, 6}, 4)},
                   {"v", Random({4, 6}, 5)},
                   {"out", Random({2, 4}, 6)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor x = at::relu(b[0]);
                    const at::Tensor qk = at::linear(x, w.at("q")) * at::linear(x, w.at("k"));
                    const at::Tensor v = at::linear(x, w.at("v"));
                    return at::linear(v * qk.sum(-1, true), w.at("out")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u);
  EXPECT_EQ(plan.gram_inputs.size(), 2u);
  EXPECT_EQ(plan.layers[0].gram, plan.layers[2].gram);
  EXPECT_NE(plan.layers[0].gram, plan.layers[3].gram);
  std::vector<at::Tensor> inputs = {at::relu(fixture.batches[0][0]),
                                    at::relu(fixture.batches[1][0])};
  ExpectGram(fixture.Grams(plan)[0], NaiveGram(inputs));
}

TEST(ActivationCapture, TellsInputsApartThatReuseTheSameMemory) {
  // Every temporary of this chain may get the address of the one before.
  Fixture fixture({{"a", Random({6, 6}, 3)}, {"b", Random({6, 6}, 4)}, {"c", Random({6, 6}, 5)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor x = b[0];
                    for (const char* name : {"a", "b", "c"}) {
                      x = at::linear(at::relu(x) + 1, w.at(name));
                    }
                    return x.sum(-1);
                  });
  EXPECT_EQ(fixture.Plan().gram_inputs.size(), 3u);
}

TEST(ActivationCapture, TellsApartAnInputThatWasWrittenBetweenTwoUses) {
  Fixture fixture({{"a", Random({6, 6}, 3)}, {"b", Random({6, 6}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor x = at::relu(b[0]);
                    const at::Tensor first = at::linear(x, w.at("a"));
                    x.add_(1);
                    return (first + at::linear(x, w.at("b"))).sum(-1);
                  });
  EXPECT_EQ(fixture.Plan().gram_inputs.size(), 2u);
}

TEST(ActivationCapture, TellsApartAnInputThatWasWrittenBehindADetachedHandle) {
  Fixture fixture({{"a", Random({6, 6}, 3)}, {"b", Random({6, 6}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor x = at::relu(b[0]);
                    const at::Tensor first = at::linear(x.detach(), w.at("a"));
                    x.add_(1);
                    return (first + at::linear(x.detach(), w.at("b"))).sum(-1);
                  });
  EXPECT_EQ(fixture.Plan().gram_inputs.size(), 2u);
}

TEST(ActivationCapture, DoesNotTakeAReshapedWeightForItsTranspose) {
  Fixture fixture(
      {{"view", Random({4, 6}, 3)}, {"body", Random({4, 4}, 4)}},
      [](const TensorMap& w, const Batch& b) -> LossValues {
        return at::linear(at::matmul(b[0], w.at("view").view({6, 4})), w.at("body")).sum(-1);
      });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 1u);
  EXPECT_EQ(plan.layers[0].name, "body");
  EXPECT_THAT(Reasons(plan)["view"], HasSubstr("reshaped"));
}

TEST(ActivationCapture, SumsOverAllUsesOfAWeight) {
  Fixture fixture({{"w", Random({6, 6}, 3)}}, [](const TensorMap& w, const Batch& b) -> LossValues {
    return at::linear(at::linear(b[0], w.at("w")), w.at("w")).sum(-1);
  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 1u);
  std::vector<at::Tensor> inputs;
  for (const Batch& batch : fixture.batches) {
    inputs.push_back(batch[0]);
    inputs.push_back(at::linear(batch[0], fixture.replica->loaded(0)));
  }
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  EXPECT_EQ(grams[0].tokens, 48);
  ExpectGram(grams[0], NaiveGram(inputs));
}

TEST(ActivationCapture, SaysWhyAParameterIsLeftOut) {
  Fixture fixture({{"embedding", Random({9, 6}, 1)},
                   {"part", Random({6, 12}, 2)},
                   {"conv", Random({3, 1, 1}, 3)},
                   {"unused", Random({6, 6}, 4)},
                   {"bias", Random({6}, 5)},
                   {"body", Random({6, 6}, 6)},
                   {"named", Random({6, 6}, 7)},
                   {"head", Random({9, 6}, 8)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor ids = (b[0].sum(-1).abs() * 4).to(at::kLong).clamp(0, 8);
                    at::Tensor x = at::embedding(w.at("embedding"), ids) + b[0];
                    x = at::linear(x, w.at("part").slice(1, 0, 6));
                    x = at::linear(x, w.at("body"), w.at("bias"));
                    x = at::linear(x, w.at("named"));
                    const at::Tensor c = at::conv1d(x.slice(1, 0, 3), w.at("conv"), {}, 1,
                                                    at::IntArrayRef(0), 1, /*groups=*/3);
                    return at::linear(x, w.at("head")).sum(-1) + c.sum();
                  });
  const CapturePlan plan = fixture.Plan({.exclude = {"named"}});
  ASSERT_EQ(plan.layers.size(), 1u);
  EXPECT_EQ(plan.layers[0].name, "body");
  std::map<std::string, std::string> reasons = Reasons(plan);
  EXPECT_EQ(reasons.size(), 7u);
  EXPECT_THAT(reasons["embedding"], HasSubstr("embedding"));
  EXPECT_THAT(reasons["part"], HasSubstr("part"));
  EXPECT_THAT(reasons["conv"], HasSubstr("convolution in 3 groups"));
  EXPECT_THAT(reasons["unused"], HasSubstr("no operator of the forward pass"));
  EXPECT_THAT(reasons["bias"], HasSubstr("not a matrix"));
  EXPECT_THAT(reasons["named"], HasSubstr("'named'"));
  EXPECT_THAT(reasons["head"], HasSubstr("output head"));
  EXPECT_EQ(plan.covered_parameters, 36);
}

TEST(ActivationCapture, FailsWithTheReasonsWhenNothingIsLeft) {
  Fixture fixture({{"only", Random({6, 6}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::linear(b[0], w.at("only")).sum(-1);
                  });
  auto plan = PlanCapture(*fixture.replica, fixture.batches, {}, int64_t{1} << 30);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("output head"));
}

TEST(ActivationCapture, FailsWhenSharedInputsComeApart) {
  auto calls = std::make_shared<int>(0);
  Fixture fixture({{"a", Random({6, 6}, 3)}, {"b", Random({6, 6}, 4)}},
                  [calls](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor x = at::relu(b[0]);
                    const at::Tensor y = *calls > 0 ? at::relu(b[0]) : x;
                    return (at::linear(x, w.at("a")) + at::linear(y, w.at("b"))).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.gram_inputs.size(), 1u);
  *calls = 1;
  ExecutionContext context;
  auto grams = CaptureGrams(*fixture.replica, plan, {0}, fixture.batches, fixture.backend, context);
  EXPECT_EQ(grams.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ActivationCapture, StopsWhenCancelled) {
  Fixture fixture({{"a", Random({6, 6}, 3)}}, [](const TensorMap& w, const Batch& b) -> LossValues {
    return at::linear(b[0], w.at("a")).sum(-1);
  });
  const CapturePlan plan = fixture.Plan();
  ExecutionContext context;
  context.cancel.Cancel();
  auto grams = CaptureGrams(*fixture.replica, plan, {0}, fixture.batches, fixture.backend, context);
  EXPECT_EQ(grams.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace activation_capture_test
}  // namespace ptqwatch::internal
