#include "ptqwatch/offline/measure_slice.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/ones.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace measure_slice_test {

using ::testing::HasSubstr;
using testing::TinyTrainer;

class MeasureLossSliceTest : public ::testing::Test {
 protected:
  MeasureLossSliceTest() {
    at::set_num_threads(1);
    for (int i = 0; i < 20; ++i) trainer_.Step();
    before_ = Weights([](const at::Tensor& weight) { return weight.clone(); });
    for (int i = 0; i < 20; ++i) trainer_.Step();
    rounded_ = Weights([](const at::Tensor& weight) { return (weight * 8).round() / 8; });
  }
  template <typename Change>
  std::vector<NamedTensor> Weights(Change change) {
    at::NoGradGuard no_grad;
    std::vector<NamedTensor> weights;
    for (const NamedTensor& live : trainer_.MakeSubject()->LiveTensors()) {
      if (live.is_parameter) weights.push_back({live.name, change(live.tensor), true});
    }
    return weights;
  }
  absl::StatusOr<LossSlice> Measure(const std::vector<NamedTensor>& previous,
                                    const std::vector<NamedTensor>& quantized,
                                    const LossSliceOptions& options = {.points = 3}) {
    const auto subject = trainer_.MakeSubject();
    return MeasureLossSlice(*subject, previous, quantized, options, context_);
  }

  ExecutionContext context_ = ExecutionContext();
  TinyTrainer trainer_;
  std::vector<NamedTensor> before_, rounded_;
};

TEST_F(MeasureLossSliceTest, HasTheLossesOfTheThreePoints) {
  int64_t last = 0;
  const std::string bytes = trainer_.Bytes();
  const auto slice =
      Measure(before_, rounded_, {.points = 3, .progress = [&](int64_t done, int64_t all) {
                                    EXPECT_EQ(done, ++last);
                                    EXPECT_EQ(all, 12);
                                  }});
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_EQ(last, 12);
  EXPECT_EQ(slice->batch_tokens, 6 * 8 * 10);
  EXPECT_EQ(slice->loss_nats.size(), 3u);
  EXPECT_EQ(trainer_.Bytes(), bytes);
  EXPECT_LT(slice->current.loss_nats, slice->previous.loss_nats);
  // Seen from the rounded weights the points have the same losses.
  double distance = 0;
  const auto live = Weights([](const at::Tensor& weight) { return weight.clone(); });
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i].name == "head") continue;  // the embedding's memory
    distance += (live[i].tensor - rounded_[i].tensor).square().sum().item<double>();
  }
  EXPECT_NEAR(std::hypot(slice->quantized.x, slice->quantized.y) * slice->weight_norm,
              std::sqrt(distance), 1e-4);
  const auto swapped = Measure(rounded_, before_);
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_EQ(swapped->current.loss_nats, slice->current.loss_nats);
  EXPECT_NEAR(swapped->previous.loss_nats, slice->quantized.loss_nats, 1e-6);
  EXPECT_NEAR(swapped->quantized.loss_nats, slice->previous.loss_nats, 1e-6);
}

TEST_F(MeasureLossSliceTest, RefusesWeightsThatDoNotFit) {
  const auto refusal = [&](const std::vector<NamedTensor>& quantized) {
    const auto slice = Measure(before_, quantized);
    EXPECT_EQ(slice.status().code(), absl::StatusCode::kInvalidArgument) << slice.status();
    return std::string(slice.status().message());
  };
  EXPECT_THAT(refusal({{"blocks.9.weight", rounded_[0].tensor}}),
              HasSubstr("quantized: the model has no floating-point parameter 'blocks.9.weight'"));
  EXPECT_THAT(refusal({{"calls", rounded_[0].tensor}}), HasSubstr("'calls'"));
  EXPECT_THAT(refusal({{"head_bias", rounded_[0].tensor}}),
              HasSubstr("'head_bias' has 192 elements, the model's 12"));
  EXPECT_THAT(refusal({{"head_bias", at::Tensor()}}), HasSubstr("has 0 elements"));
}

TEST_F(MeasureLossSliceTest, RefusesInvalidPlanesAndOptions) {
  EXPECT_THAT(std::string(Measure({}, rounded_).status().message()),
              HasSubstr("those of the previous snapshot"));
  EXPECT_THAT(std::string(Measure(before_, {}).status().message()), HasSubstr("changes no weight"));
  EXPECT_THAT(std::string(Measure(before_, before_).status().message()), HasSubstr("on the line"));
  EXPECT_EQ(Measure(before_, rounded_, {.points = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  context_.cancel.Cancel();
  EXPECT_EQ(Measure(before_, rounded_).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(MeasureLossSliceTest, SaysWhatIsWrongWithTheSubject) {
  const auto measure = [&](testing::Fault fault) {
    const auto subject = trainer_.MakeSubject(fault);
    return MeasureLossSlice(*subject, before_, rounded_, {}, context_).status();
  };
  EXPECT_EQ(measure(testing::Fault::kNoProbe).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(measure(testing::Fault::kLossesThrow).message()),
              HasSubstr("index out of range"));
}

TEST_F(MeasureLossSliceTest, SaysThatMemoryRanOut) {
  // LibTorch's CPU allocator throws a plain c10::Error.
  const auto subject =
      trainer_.MakeSubject(testing::Fault::kNone, [] { at::ones({int64_t{1} << 50}); });
  EXPECT_EQ(MeasureLossSlice(*subject, before_, rounded_, {}, context_).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace measure_slice_test
}  // namespace ptqwatch
