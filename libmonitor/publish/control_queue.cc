#include "publish/control_queue.h"

#include <utility>

#include "base/overloaded.h"
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

absl::Status ControlQueue::Add(const Command& command) {
  MutexLock lock(mutex_);
  if (closed_) return absl::FailedPreconditionError(*closed_);
  std::erase_if(commands_, [&](const Command& older) { return older.index() == command.index(); });
  commands_.push_back(command);
  if (wake_) wake_();
  return absl::OkStatus();
}

absl::Status ControlQueue::CheckMeasuring() const {
  if (page_ == nullptr || !page_->switches.nothing_to_measure) return absl::OkStatus();
  return absl::FailedPreconditionError("no snapshot: every probe is switched off");
}

absl::StatusOr<int64_t> ControlQueue::AcceptCooldown(const StartCooldown& request) {
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t number, jobs_->cooldown.Accept(request));
  if (absl::Status measuring = CheckMeasuring(); !measuring.ok()) {
    jobs_->cooldown.Fail(std::string(Message(measuring)));
    return measuring;
  }
  return number;
}

absl::StatusOr<int64_t> ControlQueue::Accept(const Command& command) {
  using Result = absl::StatusOr<int64_t>;
  const auto off = [](std::string_view what) {
    return absl::FailedPreconditionError(StrCat("no ", what, ": the monitor is off"));
  };
  const auto newest_if = [this](const absl::Status& status) -> Result {
    if (!status.ok()) return status;
    return board_ == nullptr ? 0 : board_->last_sequence();
  };
  return std::visit(
      Overloaded{
          [&](const TakeSnapshot&) { return newest_if(CheckMeasuring()); },
          [&](const Pause&) { return newest_if(absl::OkStatus()); },
          [&](const Resume&) { return newest_if(absl::OkStatus()); },
          [&](const SetEvery& set) -> Result {
            if (set.steps > 0) return newest_if(absl::OkStatus());
            return absl::InvalidArgumentError(StrCat("every = ", set.steps, ": must be positive"));
          },
          [&](const MakeSlice& request) -> Result {
            if (jobs_ == nullptr || page_ == nullptr) return off("slice");
            return jobs_->slice.Accept(request, page_->slot.attempts());
          },
          [&](const StartCooldown& request) -> Result {
            return jobs_ == nullptr ? off("shadow cooldown") : AcceptCooldown(request);
          },
          [&](const CancelCooldown&) -> Result {
            return jobs_ == nullptr ? off("shadow cooldown") : newest_if(jobs_->cooldown.Cancel());
          }},
      command);
}

absl::StatusOr<int64_t> ControlQueue::Do(const Command& command) {
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t number, Accept(command));
  PTQWATCH_RETURN_IF_ERROR(Add(command));
  return number;
}

void ControlQueue::CarryOut(TrainerSwitches& switches) {
  std::vector<Command> waiting;
  {
    MutexLock lock(mutex_);
    waiting.swap(commands_);
  }
  for (const Command& command : waiting) {
    std::visit(Overloaded{[&](const TakeSnapshot&) { ++switches.requests; },
                          [&](const Pause&) { switches.paused = true; },
                          [&](const Resume&) { switches.paused = false; },
                          [&](const SetEvery& set) { switches.every = set.steps; },
                          // A cooldown starts from the next snapshot.
                          [&](const StartCooldown&) { ++switches.requests; },
                          // Accept has already told the tracker.
                          [](const MakeSlice&) {}, [](const CancelCooldown&) {}},
               command);
  }
}

}  // namespace ptqwatch::internal
