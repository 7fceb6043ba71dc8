// Judges recorded traces of CUDA's API.
#include "support/api_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ptqwatch::testing {
namespace api_calls_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ApiCall Call(const char* thread, const char* function, uint64_t stream = 0x7f00) {
  const ApiEffect effect = EffectOf(function);
  if (effect != ApiEffect::kNone) return {function, thread, effect};
  return {function, thread, ApiEffect::kQueues, stream};
}
ApiCall Mark(ApiEffect effect) { return {"", "trainer", effect}; }

TEST(ApiCalls, FunctionsHaveTheirEffectInEveryVersion) {
  for (const char* name : {"cuMemAlloc", "cuMemAlloc_v2", "cudaMalloc", "cudaMalloc_v3020",
                           "cuMemFree_v2", "cudaFreeHost", "cuMemFreeAsync_ptsz"}) {
    EXPECT_EQ(EffectOf(name), ApiEffect::kAllocates) << name;
  }
  for (const char* name : {"cuCtxSynchronize", "cuCtxSynchronize_v2", "cudaDeviceSynchronize"}) {
    EXPECT_EQ(EffectOf(name), ApiEffect::kSynchronizesDevice) << name;
  }
  for (const char* name : {"cudaMemcpy", "cuMemcpyHtoD_v2", "cudaMemset_v3020"}) {
    EXPECT_EQ(EffectOf(name), ApiEffect::kQueues) << name;
  }
  for (const char* name : {"cudaMemcpyAsync", "cuLaunchKernel", "cudaFreeArray", "cuMemGetInfo_v2",
                           "cudaStreamSynchronize", "cudaEventSynchronize"}) {
    EXPECT_EQ(EffectOf(name), ApiEffect::kNone) << name;
  }
}

TEST(ApiCalls, ATrainerMayDoAnythingAndAMonitorItsOwnWork) {
  EXPECT_THAT(
      Violations({Call("trainer", "cuLaunchKernel", 0), Call("trainer", "cudaDeviceSynchronize"),
                  Call("ptqw-monitor", "cudaMalloc"), Mark(ApiEffect::kSteady),
                  Call("trainer", "cudaMalloc"), Call("pt_autograd_0", "cuLaunchKernel", 0),
                  Call("pt_autograd_0", "cudaFree"), Call("ptqw-monitor", "cuLaunchKernel"),
                  Call("ptqw-monitor", "cudaMemcpyAsync")},
                 "trainer"),
      IsEmpty());
}

TEST(ApiCalls, NamesEachCallThatIsInTheTrainersWayOnce) {
  EXPECT_THAT(
      Violations({Call("ptqw-state", "cuMemcpyDtoHAsync_v2", 0), Call("ptqw-state", "cudaMemcpy"),
                  Call("ptqw-monitor", "cudaEventRecord", 2), Call("ptqw-monitor", "cuMemAlloc_v2"),
                  Mark(ApiEffect::kSteady), Call("ptqw-monitor", "cuMemAlloc_v2"),
                  Call("ptqw-monitor", "cuMemAlloc_v2"), Call("ptqw-monitor", "cuCtxSynchronize")},
                 "trainer"),
      ElementsAre("ptqw-state uses a default stream: cuMemcpyDtoHAsync_v2",
                  "ptqw-state uses a default stream: cudaMemcpy",
                  "ptqw-monitor uses a default stream: cudaEventRecord",
                  "ptqw-monitor allocates or frees: cuMemAlloc_v2",
                  "ptqw-monitor synchronises the device: cuCtxSynchronize"));
}

TEST(ApiCalls, NoThreadSynchronisesInAQuietPart) {
  EXPECT_THAT(Violations({Call("trainer", "cudaDeviceSynchronize"), Mark(ApiEffect::kQuiet),
                          Call("trainer", "cuCtxSynchronize"), Mark(ApiEffect::kQuietEnd),
                          Call("trainer", "cudaDeviceSynchronize")},
                         "trainer"),
              ElementsAre("trainer synchronises the device: cuCtxSynchronize"));
}

}  // namespace api_calls_test
}  // namespace ptqwatch::testing
