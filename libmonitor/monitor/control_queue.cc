#include "monitor/control_queue.h"

#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {

void ControlQueue::Open(std::function<void()> wake) {
  MutexLock lock(mutex_);
  wake_ = std::move(wake);
  if (!commands_.empty()) wake_();
}

void ControlQueue::Close(std::string why) {
  MutexLock lock(mutex_);
  if (!closed_) closed_ = std::move(why);
  wake_ = nullptr;
  commands_.clear();
}

absl::Status ControlQueue::Add(Command command) {
  MutexLock lock(mutex_);
  if (closed_) return absl::FailedPreconditionError(*closed_);
  std::erase_if(commands_, [&](const Command& older) { return older.index() == command.index(); });
  commands_.push_back(std::move(command));
  if (wake_) wake_();
  return absl::OkStatus();
}

absl::Status ControlQueue::RequestSnapshot() {
  if (nothing_to_do_ != nullptr && *nothing_to_do_) {
    return absl::FailedPreconditionError("no snapshot: every probe is switched off");
  }
  return Add(TakeSnapshot{});
}

absl::Status ControlQueue::Pause() { return Add(SetPaused{true}); }
absl::Status ControlQueue::Resume() { return Add(SetPaused{false}); }

absl::Status ControlQueue::SetEvery(int64_t steps) {
  if (steps <= 0) {
    return absl::InvalidArgumentError(StrCat("every = ", steps, ": must be positive"));
  }
  return Add(SetInterval{steps});
}

absl::StatusOr<int64_t> ControlQueue::RequestSlice(const SliceRequest& request) {
  if (slices_ == nullptr || board_ == nullptr) {
    return absl::FailedPreconditionError("no slice: the monitor is off");
  }
  const int64_t taken = board_->snapshots_taken();
  absl::StatusOr<int64_t> number = slices_->Accept(request);
  if (!number.ok()) return number;
  PTQWATCH_RETURN_IF_ERROR(Add(MakeSlice{{*number, request, taken}}));
  return number;
}

absl::StatusOr<int64_t> ControlQueue::RequestCooldown(const CooldownRequest& request) {
  if (cooldowns_ == nullptr) {
    return absl::FailedPreconditionError("no shadow cooldown: the monitor is off");
  }
  absl::StatusOr<int64_t> number = cooldowns_->Accept(request);
  if (!number.ok()) return number;
  // It is made from the next snapshot.
  if (absl::Status requested = RequestSnapshot(); !requested.ok()) {
    cooldowns_->Fail(std::string(Message(requested)));
    return requested;
  }
  return number;
}

absl::Status ControlQueue::CancelCooldown() {
  if (cooldowns_ == nullptr) {
    return absl::FailedPreconditionError("no shadow cooldown: the monitor is off");
  }
  return cooldowns_->Cancel();
}

std::vector<Command> ControlQueue::Drain() {
  MutexLock lock(mutex_);
  return std::exchange(commands_, {});
}

}  // namespace ptqwatch::internal
