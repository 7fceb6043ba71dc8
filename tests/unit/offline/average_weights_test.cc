#include "ptqwatch/offline/average_weights.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"

namespace ptqwatch {
namespace average_weights_test {

using ::testing::HasSubstr;

template <typename T>
TensorSource Source(const std::string& name, TensorDtype dtype, const std::vector<T>& values) {
  return MakeTensorSource(
      name, dtype, {static_cast<int64_t>(values.size())},
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

class AverageCheckpointsTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::vector<TensorSource>& tensors) {
    const std::string path = directory_.File(name);
    EXPECT_TRUE(WriteSafetensors(path, tensors).ok());
    return path;
  }
  // A weight, and a step that is no floating-point number.
  std::string Checkpoint(const std::string& name, const std::vector<float>& weight, int64_t step) {
    return Write(name, {Source("w", TensorDtype::kF32, weight),
                        Source("step", TensorDtype::kI64, std::vector<int64_t>{step})});
  }
  static std::map<std::string, NamedTensor> ByName(
      const absl::StatusOr<std::vector<NamedTensor>>& tensors) {
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    std::map<std::string, NamedTensor> by_name;
    if (!tensors.ok()) return by_name;
    for (const NamedTensor& tensor : *tensors) by_name[tensor.name] = tensor;
    return by_name;
  }
  static void Refused(const absl::StatusOr<std::vector<NamedTensor>>& tensors,
                      const std::vector<std::string>& why) {
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : why) {
      EXPECT_THAT(std::string(tensors.status().message()), HasSubstr(part));
    }
  }

  testing::TempDir directory_;
};

TEST_F(AverageCheckpointsTest, TakesTheMeanAndTheLastIntegers) {
  const std::vector<float> a = {0.1f, 1e-8f, 3};
  const std::vector<float> b = {0.3f, 1, -5};
  const std::vector<float> c = {0.7f, -1, 1e30f};
  auto tensors = ByName(
      AverageCheckpoints({Checkpoint("a", a, 1), Checkpoint("b", b, 2), Checkpoint("c", c, 3)}));
  ASSERT_EQ(tensors.size(), 2u);
  const at::Tensor mean = tensors["w"].tensor;
  EXPECT_TRUE(tensors["w"].is_parameter);
  for (size_t i = 0; i < a.size(); ++i) {
    const double sum = static_cast<double>(a[i]) + b[i] + c[i];
    EXPECT_EQ(mean.const_data_ptr<float>()[i], static_cast<float>(sum / 3)) << i;
  }
  EXPECT_EQ(tensors["step"].tensor.item<int64_t>(), 3);
  EXPECT_FALSE(tensors["step"].is_parameter);
}

TEST_F(AverageCheckpointsTest, MergesWithTheWeightsOfADecay) {
  const std::vector<std::string> paths = {Checkpoint("a", {0.1f}, 1), Checkpoint("b", {2}, 2),
                                          Checkpoint("c", {4}, 3)};
  auto tensors = ByName(AverageCheckpoints(paths, {.shape = DecayShape::kCosine}));
  EXPECT_FLOAT_EQ(tensors["w"].tensor.item<float>(), 0.25f * 0.1f + 0.5f * 2 + 0.25f * 4);
  tensors = ByName(AverageCheckpoints(paths, {.shape = DecayShape::kOneMinusSqrt}));
  const double first = std::sqrt(1.0 / 3), second = std::sqrt(2.0 / 3);
  EXPECT_FLOAT_EQ(tensors["w"].tensor.item<float>(),
                  static_cast<float>(first * 0.1 + (second - first) * 2 + (1 - second) * 4));
  EXPECT_EQ(tensors["step"].tensor.item<int64_t>(), 3);
}

TEST_F(AverageCheckpointsTest, TakesAnExponentialAverageInTheOrderOfTheFiles) {
  const std::vector<std::string> paths = {Checkpoint("a", {1}, 1), Checkpoint("b", {2}, 2),
                                          Checkpoint("c", {4}, 3)};
  auto tensors = ByName(AverageCheckpoints(paths, {.decay = 0.5}));
  EXPECT_EQ(tensors["w"].tensor.item<float>(), 0.5f * (0.5f * 1 + 0.5f * 2) + 0.5f * 4);
}

TEST_F(AverageCheckpointsTest, OfOneCheckpointIsThatCheckpoint) {
  auto tensors = ByName(AverageCheckpoints({Checkpoint("a", {0.1f, 0.7f}, 1)}));
  EXPECT_TRUE(at::equal(tensors["w"].tensor, at::tensor({0.1f, 0.7f})));
}

TEST_F(AverageCheckpointsTest, NamesWhatDiffers) {
  const std::string a = Checkpoint("a", {1, 2}, 1);
  Refused(AverageCheckpoints({a, Checkpoint("longer", {1, 2, 3}, 1)}),
          {"tensor 'w' is F32[2] in '", "/a'", "F32[3] in '", "/longer'"});
  const std::string half =
      Write("half", {Source("w", TensorDtype::kF16, std::vector<uint16_t>{0, 0}),
                     Source("step", TensorDtype::kI64, std::vector<int64_t>{1})});
  Refused(AverageCheckpoints({a, half}), {"'w'", "F16[2]", "/half'"});
  const std::string less =
      Write("less", {Source("w", TensorDtype::kF32, std::vector<float>{1, 2})});
  Refused(AverageCheckpoints({a, less}), {"/less' has no tensor 'step'", "/a' has"});
  Refused(AverageCheckpoints({less, a}), {"/less' has no tensor 'step'", "/a' has"});
}

TEST_F(AverageCheckpointsTest, RefusesWhatItCannotAverage) {
  Refused(AverageCheckpoints({}), {"no checkpoints"});
  Refused(AverageCheckpoints({Checkpoint("a", {1}, 1)}, {.decay = 1}), {"decay = 1"});
  Refused(
      AverageCheckpoints({Checkpoint("a", {1}, 1)}, {.decay = 0.5, .shape = DecayShape::kLinear}),
      {"decay = 0.5", "shape = linear"});
  const std::string odd =
      Write("odd", {Source("w", TensorDtype::kF8E4M3, std::vector<uint8_t>{1, 2})});
  Refused(AverageCheckpoints({odd}), {"'w'", "/odd'", "F8_E4M3[2]"});
  EXPECT_EQ(AverageCheckpoints({directory_.File("none")}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace average_weights_test
}  // namespace ptqwatch
