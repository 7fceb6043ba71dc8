#include "monitor/control_queue.h"

#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {

void ControlQueue::Open(std::function<void()> wake) {
  MutexLock lock(mutex_);
  wake_ = std::move(wake);
  if (!commands_.empty()) wake_();
}

void ControlQueue::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  wake_ = nullptr;
  commands_.clear();
}

void ControlQueue::Add(Command command) {
  MutexLock lock(mutex_);
  if (closed_) return;
  std::erase_if(commands_, [&](const Command& older) { return older.index() == command.index(); });
  commands_.push_back(std::move(command));
  if (wake_) wake_();
}

void ControlQueue::RequestSnapshot() { Add(TakeSnapshot{}); }
void ControlQueue::Pause() { Add(SetPaused{true}); }
void ControlQueue::Resume() { Add(SetPaused{false}); }

absl::Status ControlQueue::SetEvery(int64_t steps) {
  if (steps <= 0) {
    return absl::InvalidArgumentError(StrCat("every = ", steps, ": must be positive"));
  }
  Add(SetInterval{steps});
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ControlQueue::RequestSlice(const SliceRequest& request) {
  if (slices_ == nullptr || board_ == nullptr) {
    return absl::FailedPreconditionError("no slice: the monitor is off");
  }
  const int64_t taken = board_->snapshots_taken();
  absl::StatusOr<int64_t> number = slices_->Accept(request);
  if (number.ok()) Add(MakeSlice{{*number, request, taken}});
  return number;
}

std::vector<Command> ControlQueue::Drain() {
  MutexLock lock(mutex_);
  return std::exchange(commands_, {});
}

}  // namespace ptqwatch::internal
