#include "cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/lost_context.h"
#include "support/device_run.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch::internal {
namespace {

using ::testing::HasSubstr;

TEST(CudaStatus, TellsALostContextFromOtherErrors) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "x").ok());
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorAssert, cudaErrorLaunchFailure, cudaErrorECCUncorrectable,
        cudaErrorLaunchTimeout, cudaErrorMisalignedAddress, cudaErrorIllegalInstruction}) {
    EXPECT_TRUE(IsSticky(error));
    const absl::Status status = CudaStatus(error, "multiplying");
    EXPECT_TRUE(IsLostContext(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("multiplying: cudaError"));
  }
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue,
                                  cudaErrorNotReady, cudaErrorNoDevice, cudaErrorUnknown}) {
    EXPECT_FALSE(IsSticky(error));
    EXPECT_FALSE(IsLostContext(CudaStatus(error, "x")));
  }
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "x").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CudaStatus(cudaErrorInvalidValue, "x").code(), absl::StatusCode::kInvalidArgument);
  for (const cudaError_t error :
       {cudaErrorNoDevice, cudaErrorInvalidDeviceFunction, cudaErrorUnsupportedPtxVersion,
        cudaErrorNoKernelImageForDevice, cudaErrorInitializationError, cudaErrorSystemNotReady,
        cudaErrorSystemDriverMismatch, cudaErrorCompatNotSupportedOnDevice, cudaErrorStubLibrary}) {
    EXPECT_EQ(CudaStatus(error, "x").code(), absl::StatusCode::kUnavailable) << error;
  }
}

TEST(CudaStatus, TakesOnlyItsOwnError) {
  // Without a driver, every call fails.
  int value = 0;
  const cudaError_t others = cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, -1);
  ASSERT_NE(others, cudaSuccess);
  EXPECT_FALSE(CudaStatus(cudaErrorLaunchFailure, "x").ok());
  EXPECT_EQ(cudaPeekAtLastError(), others);
  EXPECT_FALSE(CudaStatus(others, "x").ok());
  if (HasGpu().value_or(false)) {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

TEST(CudaDevice, CreateSaysWhyItFails) {
  const absl::StatusOr<bool> gpu = HasGpu();
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const bool any = *gpu;
  const absl::StatusCode expected =
      any ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kUnavailable;
  for (const cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    const absl::Status status = CudaDevice::Create({.stream = stream, .bytes = 1024}).status();
    EXPECT_EQ(status.code(), expected) << status;
  }
  // Without a driver every call is an error.
  if (any) {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

TEST(CudaDevice, TakesMemoryThatIsGiven) {
  constexpr int64_t kBytes = CudaDevice::kWorkspaceBytes + (1 << 19);
  const auto owner = testing::MakeTestDevice(2 * kBytes);
  if (owner == nullptr) return;
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    void* memory = *owner->arena().Take(kBytes, "another's arena");
    const auto device = CudaDevice::Create({.stream = stream, .bytes = kBytes, .memory = memory});
    ASSERT_TRUE(device.ok()) << device.status();
    void* odd = static_cast<char*>(memory) + 16;
    EXPECT_EQ(CudaDevice::Create({.stream = stream, .bytes = kBytes - 256, .memory = odd})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
    testing::DeviceRun run(**device);
    const testing::Matrix weight = testing::RandomMatrix(9, 40, 1);
    const QuantizerSpec spec = testing::SpecOf(QuantizationMethod::kRtn);
    testing::ExpectAgrees(run.Quantize({run.Layer(weight, nullptr, spec)})[0],
                          testing::RunOk(weight, nullptr, spec));
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// A layer as large as real ones: 512 columns beside the blocks of every kernel.
TEST(CudaDevice, AgreesOnALargeLayer) {
  const auto device = testing::MakeTestDevice(int64_t{1} << 30);
  if (device == nullptr) return;
  const testing::Matrix weight = testing::RandomMatrix(700, 1111, 2);
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16, RowType::kFloat16}) {
    const testing::Matrix x = testing::RoundedTo(type, testing::CorrelatedInputs(9000, 1111, 3));
    const GramStatistics statistics = testing::Gram(x);
    for (const QuantizationMethod method : testing::kAllMethods) {
      QuantizerSpec spec = testing::SpecOf(method);
      spec.group_size = 128;
      testing::DeviceRun run(*device);
      const DeviceGram* gram = run.Gram(x, type);
      testing::ExpectAgrees(run.Quantize({run.Layer(weight, gram, spec)})[0],
                            testing::RunOk(weight, &statistics, spec));
    }
  }
}

}  // namespace
}  // namespace ptqwatch::internal
