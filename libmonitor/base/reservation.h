#ifndef PTQWATCH_BASE_RESERVATION_H_
#define PTQWATCH_BASE_RESERVATION_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Holds bytes of a context's budget for its lifetime. Not thread-safe.
class Reservation {
 public:
  explicit Reservation(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (budget_ != nullptr && bytes_ > 0) budget_->Release(bytes_);
  }
  /// Reserves `bytes` more. ResourceExhausted, naming `what`, if fewer bytes remain.
  absl::Status Take(int64_t bytes, std::string_view what) {
    if (budget_ == nullptr) return absl::OkStatus();
    absl::Status status = budget_->Reserve(bytes, what);
    if (status.ok()) bytes_ += bytes;
    return status;
  }
  /// Releases `bytes` of the reservation.
  void Return(int64_t bytes) {
    if (budget_ == nullptr) return;
    budget_->Release(bytes);
    bytes_ -= bytes;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<ByteBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_RESERVATION_H_
