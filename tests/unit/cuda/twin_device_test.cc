#include "support/twin_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "support/device_run.h"

namespace ptqwatch::testing {
namespace twin_device_test {

using internal::Kernel;
using ::testing::HasSubstr;

// The loops, but for a fault after a kernel.
class Faulty final : public internal::ComputeDevice {
 public:
  explicit Faulty(std::function<void(const Kernel&)> fault)
      : ComputeDevice(nullptr, 0), fault_(std::move(fault)) {}
  absl::Status Run(const Kernel& kernel) override {
    PTQWATCH_RETURN_IF_ERROR(loops_.Run(kernel));
    fault_(kernel);
    return absl::OkStatus();
  }
  absl::Status Multiply(const internal::MatrixProduct& product) override {
    return loops_.Multiply(product);
  }
  absl::Status Zero(void* memory, int64_t bytes) override { return loops_.Zero(memory, bytes); }
  absl::Status Upload(void* to, const void* host, int64_t bytes) override {
    return loops_.Upload(to, host, bytes);
  }
  absl::Status Read(std::span<const internal::HostCopy> copies) override {
    return loops_.Read(copies);
  }

 private:
  HostDevice loops_{1 << 20};
  std::function<void(const Kernel&)> fault_;
};

struct Twins {
  explicit Twins(std::function<void(const Kernel&)> fault)
      : twin(std::make_unique<Faulty>(std::move(fault)), {memory, memory->aligned()}, kBytes) {}
  absl::Status Quantize(QuantizationMethod method) {
    return Quantize(SpecOf(method), RandomMatrix(9, 40, 2));
  }
  absl::Status Quantize(const QuantizerSpec& spec, const Matrix& weight) {
    DeviceRun run(twin);
    const internal::DeviceGram* gram = run.Gram(CorrelatedInputs(90, 40, 1));
    const internal::DeviceLayer layer = run.Layer(weight, gram, spec);
    internal::DeviceQuantizer quantizer(twin);
    PTQWATCH_RETURN_IF_ERROR(quantizer.Begin({&layer, 1}));
    return quantizer.Collect().status();
  }

  static constexpr int64_t kBytes = 8 << 20;
  std::shared_ptr<HostMemory> memory = std::make_shared<HostMemory>(kBytes);
  TwinDevice twin;
};

TEST(TwinDevice, FindsNoDifferenceBetweenEqualDevices) {
  for (const QuantizationMethod method : kAllMethods) {
    Twins twins([](const Kernel&) {});
    EXPECT_TRUE(twins.Quantize(method).ok());
    EXPECT_GT(twins.twin.kernels_compared(), 5);
    EXPECT_EQ(twins.twin.first_difference(), "");
  }
}

TEST(TwinDevice, NamesTheFirstKernelThatDiffers) {
  Twins twins([](const Kernel& kernel) {
    if (const auto* one = std::get_if<internal::RoundInt8>(&kernel)) one->scale.at[0][3] += 1;
  });
  const absl::Status status = twins.Quantize(QuantizationMethod::kLlmInt8);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("RoundInt8: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the first at byte "));
  EXPECT_EQ(twins.twin.first_difference(), status.message());
}

TEST(TwinDevice, AChannelScaleMayDifferInItsLastBits) {
  for (const float factor : {1 + 1e-7f, 1 + 1e-4f}) {
    Twins twins([factor](const Kernel& kernel) {
      if (const auto* one = std::get_if<internal::ChannelScales>(&kernel)) {
        one->scale.at(0)[5] *= factor;
      }
    });
    EXPECT_EQ(twins.Quantize(QuantizationMethod::kAwq).ok(), factor < 1 + 1e-5f);
  }
}

TEST(TwinDevice, ANanMayHaveOtherBits) {
  QuantizerSpec spec = SpecOf(QuantizationMethod::kRtn);
  spec.scale_dtype = ScaleDtype::kFloat16;
  Matrix weight = RandomMatrix(9, 40, 2);
  weight.at(1, 2) = 3e38f;  // its group's scale is infinite, its decoded weights are NaN
  int nans = 0;
  for (const bool also_a_number : {false, true}) {
    Twins twins([&](const Kernel& kernel) {
      const auto* one = std::get_if<internal::RoundGroups>(&kernel);
      if (one == nullptr || one->decoded.at[0] == nullptr) return;
      for (float* number = one->decoded.at[0];
           number != one->decoded.at[0] + weight.rows * weight.cols; ++number) {
        if (!std::isnan(*number)) continue;
        *number = std::bit_cast<float>(std::bit_cast<uint32_t>(*number) ^ 0x80000001u);
        ++nans;
      }
      if (also_a_number) one->decoded.at[0][0] = std::numeric_limits<float>::quiet_NaN();
    });
    EXPECT_EQ(twins.Quantize(spec, weight).ok(), !also_a_number) << twins.twin.first_difference();
  }
  EXPECT_GT(nans, 0);
}

}  // namespace twin_device_test
}  // namespace ptqwatch::testing
