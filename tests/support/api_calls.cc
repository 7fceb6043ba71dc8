#include "support/api_calls.h"

#include <algorithm>
#include <array>

#include "base/strings.h"

namespace ptqwatch::testing {
namespace {

// A function's name without its version and its variant for per-thread default streams.
std::string_view Unversioned(std::string_view function) {
  for (size_t at = function.find('_', 1); at != std::string_view::npos;
       at = function.find('_', at + 1)) {
    const std::string_view rest = function.substr(at);
    const bool version = rest.size() > 2 && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9';
    if (version || rest.starts_with("_ptsz") || rest.starts_with("_ptds")) {
      return function.substr(0, at);
    }
  }
  return function;
}

template <size_t kCount>
bool IsOneOf(std::string_view name, const std::array<std::string_view, kCount>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 3> kSynchronize = {
    "cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize"};
constexpr std::array<std::string_view, 28> kAllocate = {"cudaMalloc",
                                                        "cudaFree",
                                                        "cudaHostAlloc",
                                                        "cudaMallocHost",
                                                        "cudaFreeHost",
                                                        "cudaMallocManaged",
                                                        "cudaMallocPitch",
                                                        "cudaMallocAsync",
                                                        "cudaFreeAsync",
                                                        "cudaHostRegister",
                                                        "cudaHostUnregister",
                                                        "cuMemAlloc",
                                                        "cuMemFree",
                                                        "cuMemAllocHost",
                                                        "cuMemHostAlloc",
                                                        "cuMemFreeHost",
                                                        "cuMemAllocManaged",
                                                        "cuMemAllocPitch",
                                                        "cuMemAllocAsync",
                                                        "cuMemFreeAsync",
                                                        "cuMemCreate",
                                                        "cuMemRelease",
                                                        "cuMemMap",
                                                        "cuMemUnmap",
                                                        "cuMemHostRegister",
                                                        "cuMemHostUnregister",
                                                        "cuMemAllocFromPoolAsync",
                                                        "cudaMallocFromPoolAsync"};
constexpr std::array<std::string_view, 11> kDefaultStream = {
    "cudaMemcpy",           "cudaMemset", "cudaMemcpy2D", "cudaMemcpyToSymbol",
    "cudaMemcpyFromSymbol", "cuMemcpy",   "cuMemcpyHtoD", "cuMemcpyDtoH",
    "cuMemcpyDtoD",         "cuMemsetD8", "cuMemsetD32"};

bool OfTrainer(const ApiCall& call, std::string_view trainer) {
  return call.thread == trainer || call.thread.starts_with("pt_autograd");
}

}  // namespace

ApiEffect EffectOf(std::string_view function) {
  const std::string_view name = Unversioned(function);
  if (IsOneOf(name, kSynchronize)) return ApiEffect::kSynchronizesDevice;
  if (IsOneOf(name, kAllocate)) return ApiEffect::kAllocates;
  return IsOneOf(name, kDefaultStream) ? ApiEffect::kQueues : ApiEffect::kNone;
}

std::vector<std::string> Violations(const std::vector<ApiCall>& calls, std::string_view trainer) {
  std::vector<std::string> found;
  bool steady = false;
  bool quiet = false;
  for (const ApiCall& call : calls) {
    const bool foreign = !OfTrainer(call, trainer);
    std::string what;
    switch (call.effect) {
      case ApiEffect::kSteady:
        steady = true;
        break;
      case ApiEffect::kQuiet:
      case ApiEffect::kQuietEnd:
        quiet = call.effect == ApiEffect::kQuiet;
        break;
      case ApiEffect::kQueues:
        if (foreign && call.stream <= 2) what = " uses a default stream";
        break;
      case ApiEffect::kSynchronizesDevice:
        if (foreign || quiet) what = " synchronises the device";
        break;
      case ApiEffect::kAllocates:
        if (foreign && steady) what = " allocates or frees";
        break;
      case ApiEffect::kNone:
        break;
    }
    if (what.empty()) continue;
    what = internal::StrCat(call.thread, what, ": ", call.function);
    if (std::find(found.begin(), found.end(), what) == found.end()) found.push_back(what);
  }
  return found;
}

}  // namespace ptqwatch::testing
