#ifndef PTQWATCH_TESTS_SUPPORT_API_CALLS_H_
#define PTQWATCH_TESTS_SUPPORT_API_CALLS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptqwatch::testing {

/// The effect of a call of CUDA's API on other threads' work.
enum class ApiEffect {
  kNone,
  kQueues,  ///< work on `stream`
  kSynchronizesDevice,
  kAllocates,  ///< or frees
  // Marks that the recording thread leaves in the trace.
  kSteady,  ///< from here on, only the trainer allocates or frees
  kQuiet,   ///< from here to kQuietEnd, no thread synchronises the device
  kQuietEnd,
};

struct ApiCall {
  std::string function;
  std::string thread;  ///< its name
  ApiEffect effect = ApiEffect::kNone;
  uint64_t stream = 0;  ///< 0, 1 and 2 are the default streams
};

/// The effect of a function of the runtime or the driver that has no stream among its arguments. A
/// copy without a stream uses the default one. Versions, as in cuMemAlloc_v2, do not matter.
ApiEffect EffectOf(std::string_view function);

/// The calls that a monitor must not make beside a trainer: a thread other than the trainer's uses
/// a default stream, synchronises the device, or allocates in the steady state; any thread
/// synchronises the device in a quiet part. Each once, in order. `trainer` is the name of the
/// trainer's thread; LibTorch's threads of the backward pass count as the trainer's.
std::vector<std::string> Violations(const std::vector<ApiCall>& calls, std::string_view trainer);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_API_CALLS_H_
