#include "session/monitor_device.h"

#include <gmock/gmock.h>

#include "ptqwatch/options.h"

namespace ptqwatch::internal {
namespace monitor_device_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const at::Device kCpu(at::kCPU);
const at::Device kGpu(at::kCUDA, 1);

MonitorDevice Chosen(std::string_view option, at::Device live, int64_t parameters = 1000,
                     const GpuEnvironment& environment = {}) {
  return *ChooseMonitorDevice(option, {.device = live, .parameters = parameters}, environment);
}

TEST(ChooseMonitorDevice, LeavesModelsOnTheCpuThere) {
  for (const std::string_view option : {"auto", "trainer", "cpu"}) {
    const MonitorDevice chosen = Chosen(option, kCpu, int64_t{1} << 40);
    EXPECT_EQ(chosen.device, kCpu) << option;
    EXPECT_THAT(chosen.note, IsEmpty());
    EXPECT_THAT(chosen.warning, IsEmpty());
  }
}

TEST(ChooseMonitorDevice, TakesSmallModelsOfAGpuToTheCpu) {
  const MonitorDevice small = Chosen("auto", kGpu, kMostParametersOnCpu);
  EXPECT_EQ(small.device, kCpu);
  EXPECT_THAT(small.note, HasSubstr("cuda:1 and has 100 million parameters"));
  EXPECT_THAT(small.warning, IsEmpty());
  const MonitorDevice large = Chosen("auto", kGpu, kMostParametersOnCpu + 1);
  EXPECT_EQ(large.device, kGpu);
  EXPECT_TRUE(large.shares_gpu);
  EXPECT_FALSE(small.shares_gpu);
  EXPECT_THAT(large.warning, HasSubstr("end all CUDA work"));
}

TEST(ChooseMonitorDevice, DoesAsItIsTold) {
  EXPECT_EQ(Chosen("trainer", kGpu).device, kGpu);
  EXPECT_EQ(Chosen("cuda:1", kGpu).device, kGpu);
  EXPECT_EQ(Chosen("cuda", kGpu).device, kGpu);
  EXPECT_THAT(Chosen("cuda", kGpu).warning, HasSubstr("end all CUDA work"));
  EXPECT_EQ(Chosen("cpu", kGpu, int64_t{1} << 40).device, kCpu);
  EXPECT_EQ(Chosen("cuda:3", kGpu).device, at::Device(at::kCUDA, 3));
  EXPECT_THAT(Chosen("cuda:3", kGpu).warning, IsEmpty());
}

TEST(ChooseMonitorDevice, ALostContextEndsNoTrainingInAnotherProcess) {
  EXPECT_EQ(
      ChooseMonitorDevice(
          "auto",
          {.device = kGpu, .parameters = kMostParametersOnCpu + 1, .in_other_process = true}, {})
          ->device,
      kCpu)
      << "which takes no memory that training may need";
  for (const std::string_view option : {"trainer", "cuda:1"}) {
    const LiveModel model{
        .device = kGpu, .parameters = kMostParametersOnCpu + 1, .in_other_process = true};
    const MonitorDevice chosen = *ChooseMonitorDevice(option, model, {});
    EXPECT_EQ(chosen.device, kGpu) << option;
    EXPECT_TRUE(chosen.shares_gpu);
    EXPECT_THAT(chosen.note, HasSubstr("takes turns"));
    EXPECT_THAT(chosen.warning, IsEmpty());
  }
}

TEST(ChooseMonitorDevice, WarnsIfStreamsShareAQueue) {
  const int64_t large = kMostParametersOnCpu + 1;
  const auto warning = [&](std::string_view option, std::string connections) {
    return Chosen(option, kGpu, large, {.connections = std::move(connections)}).warning;
  };
  EXPECT_THAT(warning("auto", "1"), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS"));
  EXPECT_THAT(warning("auto", "8"), Not(HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS")));
  EXPECT_THAT(warning("cpu", "1"), IsEmpty());
}

TEST(ChooseMonitorDevice, WarnsIfProductsAreShortened) {
  const auto warning = [](std::string_view option, std::string override) {
    return Chosen(option, kGpu, 1000, {.tf32_override = std::move(override)}).warning;
  };
  EXPECT_THAT(warning("trainer", "1"), HasSubstr("process; NVIDIA_TF32_OVERRIDE is 1"));
  EXPECT_THAT(warning("cuda:0", "1"), StartsWith("NVIDIA_TF32_OVERRIDE is 1"));
  EXPECT_THAT(warning("cuda:0", "0"), IsEmpty());
  EXPECT_THAT(warning("cpu", "1"), IsEmpty());
}

TEST(ChooseMonitorDevice, NamesTheOptionAndItsValue) {
  for (const std::string_view option : {"", "gpu", "cuda:", "cuda:x", "mps", "cpu:x", "Auto"}) {
    const auto chosen = ChooseMonitorDevice(option, {.device = kGpu, .parameters = 1000}, {});
    EXPECT_EQ(chosen.status().code(), absl::StatusCode::kInvalidArgument) << option;
    EXPECT_THAT(std::string(chosen.status().message()),
                HasSubstr("MonitorOptions.monitor_device = '" + std::string(option) + "'"));
  }
  EXPECT_THAT(std::string(ChooseMonitorDevice("cuda:0", {.device = kCpu}, {}).status().message()),
              HasSubstr("a model on the CPU is measured there"));
}

}  // namespace monitor_device_test
}  // namespace ptqwatch::internal
