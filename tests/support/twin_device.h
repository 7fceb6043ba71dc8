#ifndef PTQWATCH_TESTS_SUPPORT_TWIN_DEVICE_H_
#define PTQWATCH_TESTS_SUPPORT_TWIN_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/host_device.h"

namespace ptqwatch::testing {

/// A device whose memory the host shares. Runs each kernel twice on the same bytes, on `subject`
/// and by HostDevice's loops, and compares the results. Then goes on with the loops' result, so
/// that one wrong kernel does not blame those after it. All NaNs count as equal. Products and
/// factors are the subject's.
class TwinDevice final : public internal::ComputeDevice {
 public:
  /// `memory` is the arena; the subject's own is only for its factorisations.
  TwinDevice(std::unique_ptr<internal::ComputeDevice> subject, std::shared_ptr<void> memory,
             int64_t bytes)
      : ComputeDevice(memory.get(), bytes),
        memory_(std::move(memory)),
        subject_(std::move(subject)) {}

  /// Returns Internal, naming the kernel, if its results differ and it is the first such kernel.
  absl::Status Run(const internal::Kernel& kernel) override;
  absl::Status Multiply(const internal::MatrixProduct& product) override {
    return subject_->Multiply(product);
  }
  absl::Status Zero(void* memory, int64_t bytes) override { return subject_->Zero(memory, bytes); }
  absl::Status Upload(void* to, const void* host, int64_t bytes) override {
    return subject_->Upload(to, host, bytes);
  }
  absl::Status Read(std::span<const internal::HostCopy> copies) override {
    return subject_->Read(copies);
  }

  int64_t kernels_compared() const { return compared_; }
  /// The first kernel whose results differ, and where; empty if none does.
  const std::string& first_difference() const { return first_difference_; }

 private:
  std::shared_ptr<void> memory_;
  std::unique_ptr<internal::ComputeDevice> subject_;
  HostDevice loops_{0};
  std::vector<char> before_;
  std::vector<char> theirs_;
  int64_t compared_ = 0;
  std::string first_difference_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_TWIN_DEVICE_H_
