#ifndef PTQWATCH_MONITOR_CONTROL_INBOX_H_
#define PTQWATCH_MONITOR_CONTROL_INBOX_H_

#include <atomic>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "monitor/status_board.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// Commands on their way to the next OnStep, as atomics. Any thread writes, the trainer's reads.
/// Requests for slices do not come by there: they go to the board.
class ControlInbox final : public Control {
 public:
  /// `board` takes the requests for slices and must outlive the inbox; null: they are refused.
  explicit ControlInbox(int64_t every, StatusBoard* board = nullptr)
      : every_(every), board_(board) {}

  void RequestSnapshot() override { requested_.store(true, std::memory_order_relaxed); }
  void Pause() override { paused_.store(true, std::memory_order_relaxed); }
  void Resume() override { paused_.store(false, std::memory_order_relaxed); }
  absl::Status SetEvery(int64_t steps) override {
    if (steps <= 0) {
      return absl::InvalidArgumentError(StrCat("every = ", steps, ": must be positive"));
    }
    every_.store(steps, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> RequestSlice(const SliceRequest& request) override {
    if (board_ == nullptr) return absl::FailedPreconditionError("no slice: the monitor is off");
    return board_->RequestSlice(request);
  }

  int64_t every() const noexcept { return every_.load(std::memory_order_relaxed); }
  bool paused() const noexcept { return paused_.load(std::memory_order_relaxed); }
  bool requested() const noexcept { return requested_.load(std::memory_order_relaxed); }
  /// A request stays until it was carried out: a busy slot only delays it.
  void RequestDone() noexcept { requested_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> every_;
  StatusBoard* const board_;
  std::atomic<bool> paused_{false};
  std::atomic<bool> requested_{false};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_CONTROL_INBOX_H_
