#ifndef PTQWATCH_TESTS_SUPPORT_HOST_DEVICE_H_
#define PTQWATCH_TESTS_SUPPORT_HOST_DEVICE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/compute_device.h"

namespace ptqwatch::testing {

struct HostMemory {
  explicit HostMemory(int64_t size);
  void* aligned();
  std::vector<char> bytes;
};

/// A ComputeDevice of plain loops over the kernels' bodies, block after block and phase after
/// phase. Uninitialised memory is filled with NaNs.
class HostDevice final : private HostMemory, public internal::ComputeDevice {
 public:
  explicit HostDevice(int64_t size);

  /// Runs the blocks, and the threads of a block, last to first. Results must not change.
  void set_backwards(bool backwards) { backwards_ = backwards; }
  /// The factors of the next `count` matrices fail.
  void FailFactors(int count) { failing_factors_ = count; }
  /// From call `calls` on, makes every call except Read fail with this status. OkStatus ends it.
  void FailAfter(int calls, absl::Status status) {
    calls_left_ = calls;
    failure_ = std::move(status);
  }
  int64_t kernels_run() const { return kernels_run_; }
  int64_t factors_made() const { return factors_made_; }
  int64_t reads() const { return reads_; }

  absl::Status Run(const internal::Kernel& kernel) override;
  absl::Status Multiply(const internal::MatrixProduct& product) override;
  absl::Status Zero(void* memory, int64_t count) override;
  absl::Status Upload(void* to, const void* host, int64_t count) override;
  absl::Status Read(std::span<const internal::HostCopy> copies) override;

 private:
  absl::Status Count();
  void CountFactor(const internal::Kernel& kernel);

  bool backwards_ = false;
  int failing_factors_ = 0;
  int calls_left_ = 0;
  absl::Status failure_;
  int64_t kernels_run_ = 0;
  int64_t factors_made_ = 0;
  int64_t reads_ = 0;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_HOST_DEVICE_H_
