#ifndef PTQWATCH_TESTS_SUPPORT_HOST_DEVICE_H_
#define PTQWATCH_TESTS_SUPPORT_HOST_DEVICE_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/compute_device.h"

namespace ptqwatch::testing {

/// The kernel's type, without namespaces.
std::string KernelName(const internal::Kernel& kernel);

/// How HostDevice runs a kernel's threads, see kernel_loops.h.
enum class ThreadOrder { kForwards, kBackwards, kConcurrent };

struct HostMemory {
  explicit HostMemory(int64_t size);
  void* aligned();
  std::vector<char> bytes;
};

/// A ComputeDevice of plain loops over the kernels' bodies. Uninitialised memory is filled with
/// NaNs. Run returns Internal if two threads of a phase write the same byte of Shared, which it
/// looks for in the first kCheckedRuns runs of each kind of kernel.
class HostDevice final : private HostMemory, public internal::ComputeDevice {
 public:
  explicit HostDevice(int64_t size);

  static constexpr int kCheckedRuns = 32;

  /// Results must not depend on it.
  void set_order(ThreadOrder order) { order_ = order; }
  /// The factors of the next `count` matrices fail.
  void FailFactors(int count) { failing_factors_ = count; }
  /// From call `calls` on, makes every call except Read fail with this status. OkStatus ends it.
  void FailAfter(int calls, absl::Status status) {
    calls_left_ = calls;
    failure_ = std::move(status);
  }
  int64_t factors_made() const { return factors_made_; }
  int64_t reads() const { return reads_; }
  /// The kernels that ran, and the sizes [m, n] of products by their arithmetic and of factors.
  using Shape = std::tuple<std::string, int64_t, int64_t>;
  const std::set<Shape>& shapes() const { return shapes_; }

  absl::Status Run(const internal::Kernel& kernel) override;
  absl::Status Multiply(const internal::MatrixProduct& product) override;
  absl::Status Zero(void* memory, int64_t count) override;
  absl::Status Upload(void* to, const void* host, int64_t count) override;
  absl::Status Read(std::span<const internal::HostCopy> copies) override;

 private:
  absl::Status Count();
  void CountFactor(const internal::Kernel& kernel);

#ifdef __SANITIZE_THREAD__
  ThreadOrder order_ = ThreadOrder::kConcurrent;
#else
  ThreadOrder order_ = ThreadOrder::kForwards;
#endif
  std::map<size_t, int> checked_runs_;  // by the kernel's kind
  int failing_factors_ = 0;
  int calls_left_ = 0;
  absl::Status failure_;
  int64_t kernels_run_ = 0;
  int64_t factors_made_ = 0;
  int64_t reads_ = 0;
  std::set<Shape> shapes_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_HOST_DEVICE_H_
