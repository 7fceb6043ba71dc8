// Tests which convolutions are covered, and that the Gram is built from their windows.
#include <gmock/gmock.h>

#include "ATen/ops/col2im.h"
#include "ATen/ops/conv1d.h"
#include "ATen/ops/conv2d.h"
#include "ATen/ops/conv3d.h"
#include "ATen/ops/conv_transpose2d.h"
#include "ATen/ops/im2col.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/pad.h"
#include "ATen/ops/zeros.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace convolution_forms_test {

/// One convolution of images [2, 3, 9, 8].
struct Convolution {
  const char* name;
  std::vector<int64_t> kernel, stride, padding, dilation;
};

class EveryConvolution : public ::testing::TestWithParam<Convolution> {};

TEST_P(EveryConvolution, HasTheGramOfItsWindows) {
  const Convolution& conv = GetParam();
  const std::vector<int64_t> shape = {4, 3, conv.kernel[0], conv.kernel[1]};
  Fixture fixture({{"w", Random(shape, 3)}},
                  [&conv](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::conv2d(b[0], w.at("w"), {}, conv.stride, conv.padding, conv.dilation)
                        .sum({1, 2, 3});
                  },
                  {2, 3, 9, 8});
  std::vector<at::Tensor> windows;
  for (const Batch& batch : fixture.batches) {
    windows.push_back(at::im2col(batch[0], conv.kernel, conv.dilation, conv.padding, conv.stride)
                          .transpose(1, 2));
  }
  // The weight as a matrix times the windows is the convolution, so the order of the columns is
  // right too.
  const at::Tensor weight = fixture.replica->loaded(0);
  const at::Tensor direct =
      at::conv2d(fixture.batches[0][0], weight, {}, conv.stride, conv.padding, conv.dilation)
          .flatten(2)
          .transpose(1, 2);
  EXPECT_LT((at::matmul(windows[0], weight.flatten(1).t()) - direct).abs().max().item<double>(),
            1e-5);
  ExpectOnly(fixture, 4, 3 * conv.kernel[0] * conv.kernel[1], false, windows);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EveryConvolution,
                         ::testing::Values(Convolution{"Plain", {3, 3}, {1, 1}, {0, 0}, {1, 1}},
                                           Convolution{"Strided", {3, 2}, {2, 3}, {0, 0}, {1, 1}},
                                           Convolution{"Padded", {3, 3}, {1, 1}, {1, 2}, {1, 1}},
                                           Convolution{"Dilated", {2, 3}, {1, 2}, {2, 1}, {3, 2}},
                                           Convolution{
                                               "Pointwise", {1, 1}, {1, 1}, {0, 0}, {1, 1}}),
                         [](const auto& form) { return std::string(form.param.name); });

TEST(ConvolutionForms, PadsLikeAConvolutionThatKeepsTheSize) {
  // An even kernel: one more zero at the end than at the beginning.
  Fixture fixture({{"w", Random({4, 3, 2, 4}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::conv2d(b[0], w.at("w"), {}, 1, "same").sum({1, 2, 3});
                  },
                  {2, 3, 9, 8});
  std::vector<at::Tensor> windows;
  for (const Batch& batch : fixture.batches) {
    windows.push_back(at::im2col(at::pad(batch[0], {1, 2, 0, 1}), {2, 4}, {1, 1}, {0, 0}, {1, 1})
                          .transpose(1, 2));
  }
  ExpectOnly(fixture, 4, 24, false, windows);
}

TEST(ConvolutionForms, CoversOneDimensionalConvolutionsAndImagesWithoutABatch) {
  Fixture fixture({{"w", Random({4, 3, 3}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor sum = at::zeros({1});
                    for (const at::Tensor& line : b[0].unbind(0)) {
                      sum = sum + at::conv1d(line, w.at("w"), {}, {2}, {1}, {1}).sum();
                    }
                    return sum;
                  },
                  {2, 3, 9});
  std::vector<at::Tensor> windows;
  for (const Batch& batch : fixture.batches) {
    windows.push_back(
        at::im2col(batch[0].unsqueeze(2), {1, 3}, {1, 1}, {0, 1}, {1, 2}).transpose(1, 2));
  }
  ExpectOnly(fixture, 4, 9, false, windows);
}

TEST(ConvolutionForms, CoversThreeDimensionalConvolutions) {
  const std::vector<int64_t> kernel = {2, 3, 1}, stride = {1, 2, 1}, padding = {1, 0, 2};
  Fixture fixture({{"w", Random({4, 3, 2, 3, 1}, 3)}},
                  [&](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::conv3d(b[0], w.at("w"), {}, stride, padding).sum({1, 2, 3, 4});
                  },
                  {2, 3, 5, 7, 4});
  std::vector<at::Tensor> windows;
  for (const Batch& batch : fixture.batches) {
    at::Tensor views = at::pad(batch[0], {2, 2, 0, 0, 1, 1});
    for (int64_t i = 0; i < 3; ++i) {
      views = views.unfold(i + 2, kernel[static_cast<size_t>(i)], stride[static_cast<size_t>(i)]);
    }
    windows.push_back(views.permute({0, 2, 3, 4, 1, 5, 6, 7}).flatten(4).flatten(1, 3));
  }
  const at::Tensor weight = fixture.replica->loaded(0);
  const at::Tensor direct = at::conv3d(fixture.batches[0][0], weight, {}, stride, padding);
  EXPECT_LT((at::matmul(windows[0], weight.flatten(1).t()) - direct.flatten(2).transpose(1, 2))
                .abs()
                .max()
                .item<double>(),
            1e-5);
  ExpectOnly(fixture, 4, 18, false, windows);
}

TEST(ConvolutionForms, TakesATransposedConvolutionAsAProductWithItsPixels) {
  Fixture fixture({{"w", Random({3, 4, 2, 3}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::conv_transpose2d(b[0], w.at("w"), {}, {2, 1}, {1, 0}).sum({1, 2, 3});
                  },
                  {2, 3, 5, 7});
  std::vector<at::Tensor> pixels;
  for (const Batch& batch : fixture.batches) {
    pixels.push_back(batch[0].flatten(2).transpose(1, 2));
  }
  // The product, summed where its results overlap, is the convolution.
  const at::Tensor weight = fixture.replica->loaded(0);
  const at::Tensor columns = at::matmul(pixels[0], weight.flatten(1)).transpose(1, 2);
  const at::Tensor direct = at::conv_transpose2d(fixture.batches[0][0], weight, {}, {2, 1}, {1, 0});
  EXPECT_LT((at::col2im(columns, direct.sizes().slice(2), {2, 3}, {1, 1}, {1, 0}, {2, 1}) - direct)
                .abs()
                .max()
                .item<double>(),
            1e-5);
  ExpectOnly(fixture, 24, 3, true, pixels);
}

TEST(ConvolutionForms, GoesThroughManyImagesInBlocks) {
  // 5 images of 2500 windows: more than one block, and a last one that is smaller.
  Fixture fixture({{"w", Random({2, 1, 3, 3}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::conv2d(b[0], w.at("w"), {}, {1}, {1}).sum({1, 2, 3});
                  },
                  {5, 1, 50, 50});
  std::vector<at::Tensor> windows;
  for (const Batch& batch : fixture.batches) {
    windows.push_back(at::im2col(batch[0], {3, 3}, {1, 1}, {1, 1}, {1, 1}).transpose(1, 2));
  }
  ExpectOnly(fixture, 2, 9, false, windows);
}

TEST(ConvolutionForms, KeepsOneGramForWeightsThatSeeTheSameWindows) {
  Fixture fixture({{"a", Random({4, 3, 3, 3}, 3)},
                   {"b", Random({2, 3, 3, 3}, 4)},
                   {"strided", Random({2, 3, 3, 3}, 5)},
                   {"pointwise", Random({2, 3, 1, 1}, 6)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor sum = at::conv2d(b[0], w.at("a")).sum({1, 2, 3});
                    sum = sum + at::conv2d(b[0], w.at("b")).sum({1, 2, 3});
                    sum = sum + at::conv2d(b[0], w.at("strided"), {}, 2).sum({1, 2, 3});
                    return sum + at::conv2d(b[0], w.at("pointwise")).sum({1, 2, 3});
                  },
                  {2, 3, 9, 8});
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u);
  EXPECT_EQ(plan.gram_inputs, (std::vector<int64_t>{27, 27, 3}));
  EXPECT_EQ(plan.layers[0].gram, plan.layers[1].gram);
}

}  // namespace convolution_forms_test
}  // namespace ptqwatch::internal
