// Why a weight is left out.
#include <gmock/gmock.h>

#include "ATen/ops/bmm.h"
#include "ATen/ops/conv2d.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/mv.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/quantize_per_tensor.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/zeros_like.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace left_out_weights_test {

using ::testing::HasSubstr;

/// Why "w" is skipped, beside a layer "body" that is covered.
std::string ReasonFor(std::vector<int64_t> shape,
                      std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)> use) {
  Fixture fixture({{"w", Random(std::move(shape), 3)}, {"body", Random({2, 6}, 4)}},
                  [use = std::move(use)](const TensorMap& w, const Batch& b) -> LossValues {
                    return use(b[0], w.at("w")).sum() + at::linear(b[0], w.at("body")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_EQ(plan.layers.size(), 1u);
  EXPECT_EQ(plan.covered_parameters, 12);
  std::map<std::string, std::string> reasons = Reasons(plan);
  EXPECT_EQ(reasons.size(), 1u);
  return reasons["w"];
}

TEST(LeftOutWeights, HaveTheirReasons) {
  const auto images = [](const at::Tensor& x) { return x.reshape({2, 4, 3, 3}); };
  EXPECT_THAT(ReasonFor({4, 2, 2, 2},
                        [&](auto& x, auto& w) {
                          return at::conv2d(images(x), w, {}, {1}, at::IntArrayRef(0), {1},
                                            /*groups=*/2);
                        }),
              HasSubstr("2 groups"));
  EXPECT_THAT(ReasonFor({8, 4, 2, 2},
                        [&](auto& x, auto& w) { return at::conv2d(images(x), w.narrow(0, 0, 4)); }),
              HasSubstr("part"));
  // Not a run of the weight's elements.
  EXPECT_THAT(ReasonFor({6, 8}, [](auto& x, auto& w) { return at::linear(x, w.narrow(1, 2, 6)); }),
              HasSubstr("part"));
  EXPECT_THAT(ReasonFor({8, 6},
                        [](auto& x, auto& w) {
                          return at::linear(x, w.narrow(0, 0, 6)) +
                                 at::linear(x, w.narrow(0, 2, 6));
                        }),
              HasSubstr("its multiplied parts overlap"));
  EXPECT_THAT(ReasonFor({6, 6},
                        [](auto& x, auto& w) {
                          return at::linear(x, w).sum() + at::linear(x, w.narrow(0, 0, 2)).sum();
                        }),
              HasSubstr("its multiplied parts overlap"));
  EXPECT_THAT(ReasonFor({6, 6},
                        [](auto& x, auto& w) {
                          at::Tensor masked = w.clone();
                          masked.triu_();
                          return at::linear(x, masked);
                        }),
              HasSubstr("changed"));
  EXPECT_THAT(ReasonFor({6, 6},
                        [](auto& x, auto& w) {
                          at::Tensor rounded = w.clone();
                          rounded.variable_data().round_();  // as Python's .data
                          return at::linear(x, rounded);
                        }),
              HasSubstr("changed"));
  EXPECT_THAT(ReasonFor({4, 6, 5}, [](auto& x, auto& w) { return at::bmm(x, w.narrow(0, 0, 3)); }),
              HasSubstr("part or a reshaped"));
  EXPECT_THAT(ReasonFor({6, 6}, [](auto& x, auto& w) { return at::matmul(at::linear(x, w), w); }),
              HasSubstr("both orientations"));
}

TEST(LeftOutWeights, AreNamedWithTheOperatorThatHidesThem) {
  EXPECT_EQ(ReasonFor({6, 6}, [](auto& x, auto& w) { return at::linear(x, w * 2); }),
            "goes into aten::mul, which is not seen through");
  // A spectral norm: the product with a vector is no layer.
  EXPECT_EQ(
      ReasonFor({6, 6}, [](auto& x,
                           auto& w) { return at::linear(x, w / at::mv(w, at::ones({6})).norm()); }),
      "goes into aten::div, which is not seen through");
  EXPECT_EQ(ReasonFor({1, 4, 6}, [](auto& x, auto& w) { return x + w; }),
            "goes into aten::add, which is not seen through");
  EXPECT_EQ(ReasonFor({4, 6},
                      [](auto& x, auto& w) {
                        return at::layer_norm(x, {4, 6}, w);
                      }),
            "goes into aten::native_layer_norm, which is not seen through");
  // The innermost of nested operators; views and copies do not count.
  EXPECT_EQ(ReasonFor({6, 6},
                      [](auto& x, auto& w) {
                        const at::Tensor keys = w.clone().view({1, 1, 6, 6});
                        return at::scaled_dot_product_attention(x.view({1, 1, 12, 6}), keys, keys);
                      }),
            "goes into aten::_scaled_dot_product_flash_attention_for_cpu, which is not seen "
            "through");
  EXPECT_EQ(ReasonFor({6, 6},
                      [](auto& x, auto& w) {
                        const at::Tensor codes = at::quantize_per_tensor(w, 0.1, 0, at::kQInt8);
                        return at::linear(x, codes.dequantize());
                      }),
            "goes into aten::quantize_per_tensor, which is not seen through");
  // An operator that only reads its shape or compares its values does not count.
  EXPECT_EQ(ReasonFor({6, 6},
                      [](auto& x, auto& w) {
                        return at::linear(x, at::zeros_like(w)) * (at::equal(w, w) ? 1 : 2);
                      }),
            "no operator of the forward pass takes it");
}

TEST(LeftOutWeights, MayBeFactorsOfOne) {
  Fixture fixture({{"a", Random({6, 2}, 3)}, {"b", Random({2, 6}, 4)}, {"body", Random({2, 6}, 5)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor low_rank = at::matmul(w.at("a"), w.at("b"));
                    return at::linear(at::linear(b[0], low_rank), w.at("body")).sum(-1);
                  });
  std::map<std::string, std::string> reasons = Reasons(fixture.Plan());
  EXPECT_THAT(reasons["a"], HasSubstr("another parameter"));
  EXPECT_THAT(reasons["b"], HasSubstr("another parameter"));
}

}  // namespace left_out_weights_test
}  // namespace ptqwatch::internal
