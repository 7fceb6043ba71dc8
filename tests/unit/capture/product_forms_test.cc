// Tests which ways to write a product are covered, and that the Gram is built from the rows that
// the weight is multiplied with.
#include <gmock/gmock.h>

#include "ATen/autocast_mode.h"
#include "ATen/ops/_nested_tensor_from_mask.h"
#include "ATen/ops/_transformer_encoder_layer_fwd.h"
#include "ATen/ops/addbmm.h"
#include "ATen/ops/addmv.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/baddbmm.h"
#include "ATen/ops/bilinear.h"
#include "ATen/ops/bmm.h"
#include "ATen/ops/conv1d.h"
#include "ATen/ops/einsum.h"
#include "ATen/ops/index.h"
#include "ATen/ops/linalg_multi_dot.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/mv.h"
#include "ATen/ops/nested_to_padded_tensor.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/tensordot.h"
#include "ATen/ops/zeros.h"
#include "c10/core/InferenceMode.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace product_forms_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One way to multiply with a weight "w" of that shape.
struct Form {
  const char* name;
  std::vector<int64_t> weight;
  bool transposed;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)> product;
};

class EveryForm : public ::testing::TestWithParam<Form> {};

TEST_P(EveryForm, IsCoveredWithTheGramOfItsInput) {
  const Form& form = GetParam();
  Fixture fixture({{"w", Random(form.weight, 3)}},
                  [&form](const TensorMap& w, const Batch& b) -> LossValues {
                    return form.product(b[0], w.at("w")).sum().reshape({1});
                  });
  ExpectOnly(fixture, 5, 6, form.transposed, {fixture.batches[0][0], fixture.batches[1][0]});
}

INSTANTIATE_TEST_SUITE_P(
    Products, EveryForm,
    ::testing::Values(
        Form{"Linear", {5, 6}, false, [](auto& x, auto& w) { return at::linear(x, w); }},
        Form{"MatmulTransposed", {6, 5}, true, [](auto& x, auto& w) { return at::matmul(x, w); }},
        Form{"WeightOnTheLeftOfABatch",
             {5, 6},
             false,
             [](auto& x, auto& w) { return at::matmul(w, x.transpose(1, 2)); }},
        Form{"Einsum",
             {5, 6},
             false,
             [](auto& x, auto& w) {
               return at::einsum("bti,oi->bto", {x, w});
             }},
        Form{"EinsumTransposed",
             {6, 5},
             true,
             [](auto& x, auto& w) {
               return at::einsum("bti,io->bto", {x, w});
             }},
        Form{"EinsumWeightFirst",
             {5, 6},
             false,
             [](auto& x, auto& w) {
               return at::einsum("oi,bti->obt", {w, x});
             }},
        Form{"EinsumByHeads",
             {6, 5, 1},
             true,
             [](auto& x, auto& w) {
               return at::einsum("bti,ihk->bthk", {x, w});
             }},
        Form{"Tensordot",
             {5, 6},
             false,
             [](auto& x, auto& w) { return at::tensordot(x, w, {2}, {1}); }},
        Form{"BmmOfOne",
             {6, 5},
             true,
             [](auto& x, auto& w) {
               return at::bmm(x.reshape({1, 12, 6}), w.unsqueeze(0));
             }},
        Form{"BmmOfAnExpandedWeight",
             {5, 6},
             false,
             [](auto& x, auto& w) {
               return at::bmm(x, w.t().expand({3, 6, 5}));
             }},
        Form{"BmmWithTheWeightOnTheLeft",
             {5, 6},
             false,
             [](auto& x, auto& w) {
               return at::bmm(w.expand({3, 5, 6}), x.transpose(1, 2));
             }},
        Form{"Baddbmm",
             {6, 5},
             true,
             [](auto& x, auto& w) {
               return at::baddbmm(at::zeros({3, 4, 5}), x, w.expand({3, 6, 5}));
             }},
        Form{"AddmmInPlace",
             {6, 5},
             true,
             [](auto& x, auto& w) {
               return at::zeros({12, 5}).addmm_(x.reshape({12, 6}), w);
             }},
        Form{"Addbmm",
             {6, 5},
             true,
             [](auto& x, auto& w) {
               return at::addbmm(at::zeros({4, 5}), x, w.expand({3, 6, 5}));
             }},
        Form{"MultiDot",
             {6, 5},
             true,
             [](auto& x, auto& w) {
               return at::linalg_multi_dot({x.reshape({12, 6}), w, at::ones({5, 20})});
             }},
        Form{"Mv",
             {5, 6},
             false,
             [](auto& x, auto& w) {
               at::Tensor sum = at::zeros({5});
               for (const at::Tensor& row : x.reshape({-1, 6}).unbind(0))
                 sum = sum + at::mv(w, row);
               return sum;
             }},
        Form{"Addmv",
             {5, 6},
             false,
             [](auto& x, auto& w) {
               at::Tensor sum = at::zeros({5});
               for (const at::Tensor& row : x.reshape({-1, 6}).unbind(0))
                 sum = at::addmv(sum, w, row);
               return sum;
             }},
        Form{"Clone", {5, 6}, false, [](auto& x, auto& w) { return at::linear(x, w.clone()); }},
        Form{"ContiguousTranspose",
             {5, 6},
             false,
             [](auto& x, auto& w) { return at::matmul(x, w.t().contiguous()); }},
        Form{"TransposeOfACopy",
             {5, 6},
             false,
             [](auto& x, auto& w) { return at::matmul(x, w.to(at::kDouble).to(at::kFloat).t()); }},
        Form{"EinsumOfACopy",
             {5, 6},
             false,
             [](auto& x, auto& w) { return at::einsum("bti,oi->bto", {x, w.clone()}); }},
        Form{"CopyOfACopy",
             {5, 6},
             false,
             [](auto& x, auto& w) { return at::linear(x, w.to(at::kBFloat16).to(at::kFloat)); }}),
    [](const auto& form) { return std::string(form.param.name); });

TEST(ProductForms, SeesTheRoundedInputsOfAWeightInLowPrecision) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    Fixture fixture({{"w", Random({5, 6}, 3)}},
                    [dtype](const TensorMap& w, const Batch& b) -> LossValues {
                      return at::linear(b[0].to(dtype), w.at("w").to(dtype)).to(at::kFloat).sum(-1);
                    });
    ExpectOnly(fixture, 5, 6, false,
               {fixture.batches[0][0].to(dtype).to(at::kFloat),
                fixture.batches[1][0].to(dtype).to(at::kFloat)});
  }
}

/// Autocast on the CPU to bfloat16 while it lives.
struct Autocast {
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

TEST(ProductForms, CoversWhatRunsUnderAutocast) {
  Fixture fixture({{"linear", Random({6, 6}, 3)},
                   {"einsum", Random({5, 6}, 4)},
                   {"conv", Random({2, 3, 3}, 5)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const Autocast autocast;
                    at::Tensor x = at::linear(b[0], w.at("linear"));
                    x = at::einsum("bti,oi->bto", {at::relu(x), w.at("einsum")});
                    return at::conv1d(x.slice(1, 0, 3), w.at("conv")).to(at::kFloat).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 3u) << ::testing::PrintToString(Reasons(plan));
  EXPECT_THAT(plan.skipped, IsEmpty());
  ExpectGram(fixture.Grams(plan)[0], NaiveGram({fixture.batches[0][0], fixture.batches[1][0]}));
}

TEST(ProductForms, KeepsOneGramForViewsOfOneActivation) {
  // einsum makes views of its own for each product.
  Fixture fixture({{"q", Random({5, 6}, 3)}, {"k", Random({5, 6}, 4)}, {"v", Random({5, 6}, 5)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor x = at::relu(b[0]);
                    at::Tensor sum = at::zeros({3, 4});
                    for (const char* name : {"q", "k", "v"}) {
                      sum = sum + at::einsum("bti,oi->bto", {x, w.at(name)}).square().sum(-1);
                    }
                    return sum;
                  });
  EXPECT_EQ(fixture.Plan().gram_inputs.size(), 1u);
}

TEST(ProductForms, CoversAWeightWhoseProductServesQueryKeyAndValue) {
  Fixture fixture({{"w", Random({15, 6}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const auto parts = at::linear(b[0], w.at("w")).chunk(3, -1);
                    return (parts[0] * parts[1] + parts[2]).sum(-1);
                  });
  ExpectOnly(fixture, 15, 6, false, {fixture.batches[0][0], fixture.batches[1][0]});
}

TEST(ProductForms, CoversATiedWeightOnceWithAllItsInputs) {
  const at::Tensor shared = Random({6, 6}, 3);
  Fixture fixture({{"w", shared}, {"alias", shared}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::linear(at::relu(at::linear(b[0], w.at("w"))), w.at("alias")).sum(-1);
                  });
  std::vector<at::Tensor> inputs;
  for (const Batch& batch : fixture.batches) {
    inputs.push_back(batch[0]);
    inputs.push_back(at::relu(at::linear(batch[0], shared)));
  }
  ExpectOnly(fixture, 6, 6, false, inputs);
}

TEST(ProductForms, SeesThroughTheFusedOperatorsOfATransformer) {
  Fixture fixture({{"qkv", Random({18, 6}, 3)},
                   {"out", Random({6, 6}, 4)},
                   {"up", Random({8, 6}, 5)},
                   {"down", Random({6, 8}, 6)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor ones = at::ones({6}), zeros = at::zeros({6});
                    return at::_transformer_encoder_layer_fwd(
                               b[0], 6, 2, w.at("qkv"), at::zeros({18}), w.at("out"), zeros, false,
                               false, 1e-5, ones, zeros, ones, zeros, w.at("up"), at::zeros({8}),
                               w.at("down"), zeros)
                        .square()
                        .sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u) << ::testing::PrintToString(Reasons(plan));
  ExpectGram(fixture.Grams(plan)[0], NaiveGram({fixture.batches[0][0], fixture.batches[1][0]}));
  for (const CoveredLayer& layer : plan.layers) EXPECT_FALSE(layer.transposed);
}

TEST(ProductForms, TakesABilinearWeightAsAProductWithTheSecondInput) {
  Fixture fixture({{"w", Random({3, 5, 6}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::bilinear(b[0].narrow(-1, 0, 5), b[0], w.at("w")).sum(-1);
                  });
  ExpectOnly(fixture, 15, 6, false, {fixture.batches[0][0], fixture.batches[1][0]});
}

TEST(ProductForms, TellsApartInputsWrittenUnderInferenceMode) {
  // Tensors made there have no version that would tell.
  Fixture fixture({{"a", Random({6, 6}, 3)}, {"b", Random({6, 6}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const c10::InferenceMode inference;
                    at::Tensor x = at::relu(b[0]);
                    const at::Tensor first = at::linear(x, w.at("a"));
                    x.add_(1);
                    return (first + at::linear(x, w.at("b"))).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_EQ(plan.gram_inputs.size(), 2u);
  ExpectGram(fixture.Grams(plan)[1],
             NaiveGram({at::relu(fixture.batches[0][0]) + 1, at::relu(fixture.batches[1][0]) + 1}));
}

TEST(ProductForms, TakesAParameterForTheInputOfALayer) {
  // Latents, queries or an initial state that are learned.
  Fixture fixture({{"w", Random({5, 6}, 3)}, {"latents", Random({1, 2, 6}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor latents = w.at("latents").expand({3, 2, 6});
                    return at::linear(latents, w.at("w")).sum(-1).sum(-1) +
                           at::linear(b[0], w.at("w")).sum(-1).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 1u) << ::testing::PrintToString(Reasons(plan));
  EXPECT_EQ(plan.layers[0].name, "w");
  EXPECT_THAT(Reasons(plan)["latents"], HasSubstr("another parameter"));
  const at::Tensor latents = fixture.replica->loaded(1).expand({3, 2, 6});
  ExpectGram(fixture.Grams(plan)[0],
             NaiveGram({latents, fixture.batches[0][0], latents, fixture.batches[1][0]}));
}

// [3, 4, 6] of which 4, 2 and 3 rows are not padding.
TEST(ProductForms, RowsOfANestedTensor) {
  const at::Tensor mask = at::arange(4).unsqueeze(0) < at::tensor({4, 2, 3}).unsqueeze(1);
  Fixture fixture({{"w", Random({5, 6}, 3)}, {"b", Random({5}, 4)}},
                  [mask](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor rows = at::_nested_tensor_from_mask(b[0], mask);
                    const at::Tensor y = at::linear(rows, w.at("w"), w.at("b"));
                    return at::nested_to_padded_tensor(y, 0, {}).sum(-1);
                  });
  std::vector<at::Tensor> rows;
  for (const Batch& batch : fixture.batches) {
    rows.push_back(at::index(batch[0], {mask}));
  }
  ExpectOnly(fixture, 5, 6, false, rows);
}

TEST(ProductForms, DetachedCopies) {
  Fixture fixture({{"w", Random({5, 6}, 3)}}, [](const TensorMap& w, const Batch& b) -> LossValues {
    at::Tensor copy = w.at("w").clone();
    copy.detach_();
    return at::linear(b[0], copy).sum(-1);
  });
  ExpectOnly(fixture, 5, 6, false, {fixture.batches[0][0], fixture.batches[1][0]});
}

}  // namespace product_forms_test
}  // namespace ptqwatch::internal
