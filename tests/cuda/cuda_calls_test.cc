// Records CudaDevice's calls of the driver and the libraries, which this program replaces. It does
// not link if the device destroys a handle, waits for all work on the GPU, or spins on a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/launch.h"
#include "cuda/lost_context.h"

namespace ptqwatch::internal {
namespace cuda_calls_test {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;

struct Driver {
  std::vector<std::string> calls;     // since Clear
  std::vector<const char*> copied;    // the host's side of copies since Clear
  std::vector<const char*> buffers;   // page-locked memory
  std::vector<unsigned> event_flags;  // of every event
  void* workspace = nullptr;          // set last
  cublasHandle_t blas = nullptr;      // given a stream last
  bool lost = false;

  cudaError_t Call(const char* name) {
    calls.push_back(name);
    return lost ? cudaErrorIllegalAddress : cudaSuccess;
  }
  void Clear() {
    calls.clear();
    copied.clear();
  }
};

Driver& TheDriver() {
  static Driver driver;
  return driver;
}
template <typename Handle>
Handle NewHandle() {
  return reinterpret_cast<Handle>(new int);
}
void Note(const char* name) { static_cast<void>(TheDriver().Call(name)); }

}  // namespace cuda_calls_test

template <class K>
cudaError_t Launch(const K&, cudaStream_t) {
  return cuda_calls_test::TheDriver().Call("Launch");
}
template <class K>
cudaError_t Prepare() {
  return cudaSuccess;
}

namespace cuda_calls_test {

// Makes the compiler emit both for every kernel.
template <size_t... kIndex>
auto Instances(std::index_sequence<kIndex...>) {
  return std::array{
      reinterpret_cast<void (*)()>(&Launch<std::variant_alternative_t<kIndex, Kernel>>)...,
      reinterpret_cast<void (*)()>(&Prepare<std::variant_alternative_t<kIndex, Kernel>>)...};
}
extern const std::array<void (*)(), 2 * std::variant_size_v<Kernel>> kInstances;
const std::array<void (*)(), 2 * std::variant_size_v<Kernel>> kInstances =
    Instances(std::make_index_sequence<std::variant_size_v<Kernel>>());

constexpr int64_t kBuffer = int64_t{1} << 20;
constexpr int64_t kArena = int64_t{4} << 20;
constexpr int64_t kBytes = CudaDevice::kWorkspaceBytes + kArena;

struct CudaCalls : ::testing::Test {
  CudaCalls() {
    TheDriver().lost = false;
    TheDriver().Clear();
  }
  std::unique_ptr<CudaDevice> Create(CudaDeviceOptions options) {
    options.stream = reinterpret_cast<cudaStream_t>(memory.data());
    auto device = CudaDevice::Create(options);
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  std::unique_ptr<CudaDevice> Whole() { return Create({.bytes = kBytes, .memory = aligned()}); }
  void* aligned() {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (Arena::kAlignment - at % Arena::kAlignment);
  }
  const std::vector<std::string>& calls() const { return TheDriver().calls; }

  std::vector<char> memory = std::vector<char>(kBytes + Arena::kAlignment);
};

// Freeing memory or destroying a handle would wait for all work on the GPU, the trainer's too, and
// could end a graph that it captures.
TEST_F(CudaCalls, AMonitorThatEndsWaitsForItsOwnStreamAlone) {
  auto device = Whole();
  EXPECT_EQ(TheDriver().workspace, aligned());
  EXPECT_EQ(device->arena().size(), kArena);
  TheDriver().Clear();
  device.reset();
  EXPECT_EQ(calls(), (std::vector<std::string>{"cudaEventRecord", "cudaEventSynchronize"}));
}

TEST_F(CudaCalls, HandlesAreMadeOnceAndLentAgain) {
  Whole().reset();
  TheDriver().Clear();
  const auto again = Whole();
  for (const char* name :
       {"cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags", "cublasCreate"}) {
    EXPECT_THAT(calls(), Not(Contains(std::string(name))));
  }
  // Two devices at a time share none.
  const cublasHandle_t first = TheDriver().blas;
  const auto other = Whole();
  EXPECT_NE(TheDriver().blas, first);
}

TEST_F(CudaCalls, VectorsNeedNoLibraries) {
  std::vector<std::unique_ptr<CudaDevice>> devices;
  while (std::count(calls().begin(), calls().end(), "cudaHostAlloc") < 2) {
    devices.push_back(Create({.bytes = kArena, .memory = aligned(), .libraries = false}));
    EXPECT_EQ(devices.back()->arena().size(), kArena);
  }
  EXPECT_THAT(calls(), Not(Contains("cublasCreate")));
}

TEST_F(CudaCalls, ADeviceThatIsOnlyAskedTakesNoMemory) {
  const auto device = Create({.bytes = 0});
  EXPECT_THAT(calls(), Not(Contains("cudaMalloc")));
  EXPECT_FALSE(CudaDevice::Create({.stream = reinterpret_cast<cudaStream_t>(memory.data()),
                                   .bytes = CudaDevice::kWorkspaceBytes - 256,
                                   .memory = aligned()})
                   .ok());
}

// A copy of pageable memory, and a wait for a stream, would spin on a core.
TEST_F(CudaCalls, WaitsBlockAndCopiesGoThroughPageLockedMemory) {
  const auto device = Whole();
  EXPECT_THAT(TheDriver().event_flags,
              Each(unsigned{cudaEventBlockingSync | cudaEventDisableTiming}));
  // More than the buffer, in two pieces.
  std::vector<char> host(kBuffer * 5 / 2);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i % 251);
  char* const there = *device->arena().TakeArray<char>(std::ssize(host), "a copy");
  TheDriver().Clear();
  ASSERT_TRUE(device->Upload(there, host.data(), std::ssize(host)).ok());
  EXPECT_EQ(std::memcmp(there, host.data(), host.size()), 0);
  std::vector<char> back(host.size());
  const HostCopy copies[] = {
      {.host = back.data(), .from = there, .bytes = 7},
      {.host = back.data() + 7, .from = there + 7, .bytes = std::ssize(back) - 7}};
  ASSERT_TRUE(device->Read(copies).ok());
  EXPECT_EQ(back, host);
  for (const char* copied : TheDriver().copied) {
    EXPECT_TRUE(std::any_of(
        TheDriver().buffers.begin(), TheDriver().buffers.end(),
        [&](const char* buffer) { return copied >= buffer && copied < buffer + kBuffer; }));
  }
}

TEST_F(CudaCalls, LeaksEverythingIfTheContextIsLost) {
  auto device = Create({.bytes = kBytes});
  TheDriver().lost = true;
  EXPECT_TRUE(IsLostContext(device->Synchronize()));
  TheDriver().Clear();
  device.reset();
  EXPECT_THAT(calls(), Not(Contains("cudaFree")));
}

}  // namespace cuda_calls_test
}  // namespace ptqwatch::internal

using ptqwatch::internal::cuda_calls_test::NewHandle;
using ptqwatch::internal::cuda_calls_test::Note;
using ptqwatch::internal::cuda_calls_test::TheDriver;

extern "C" {
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 1 << 20, cudaSuccess;
}
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaStreamQuery(cudaStream_t) { return TheDriver().Call("cudaStreamQuery"); }
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return TheDriver().Call("cudaMalloc");
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return TheDriver().Call("cudaFree");
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  TheDriver().buffers.push_back(static_cast<const char*>(*memory));
  return TheDriver().Call("cudaHostAlloc");
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = NewHandle<cudaEvent_t>();
  TheDriver().event_flags.push_back(flags);
  return TheDriver().Call("cudaEventCreateWithFlags");
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return TheDriver().Call("cudaEventRecord");
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return TheDriver().Call("cudaEventSynchronize"); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  TheDriver().copied.push_back(
      static_cast<const char*>(kind == cudaMemcpyHostToDevice ? from : to));
  std::memcpy(to, from, bytes);
  return TheDriver().Call("cudaMemcpyAsync");
}
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) {
  return TheDriver().Call("cudaMemsetAsync");
}
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = NewHandle<cublasHandle_t>();
  Note("cublasCreate");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t) {
  TheDriver().blas = handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void* workspace, size_t) {
  TheDriver().workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                                             int64_t, int64_t, int64_t, const void*, const void*,
                                             cudaDataType, int64_t, long long int, const void*,
                                             cudaDataType, int64_t, long long int, const void*,
                                             void*, cudaDataType, int64_t, long long int, int64_t,
                                             cublasComputeType_t, cublasGemmAlgo_t) {
  return CUBLAS_STATUS_SUCCESS;
}
}  // extern "C"
