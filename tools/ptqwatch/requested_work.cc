#include "requested_work.h"

#include <utility>

#include "base/strings.h"
#include "printable.h"
#include "status_text.h"

namespace ptqwatch::internal {
namespace {

// Statuses from a run directory, or a server of run directories, are up to a second old.
constexpr std::chrono::seconds kOldestStatus{2};

}  // namespace

WorkProgress SliceProgress(const RunStatus& status) {
  const SliceStatus& slice = status.monitor.slice;
  return {slice.number, static_cast<int>(slice.state),
          slice.state == SliceState::kDone || slice.state == SliceState::kFailed,
          slice.state == SliceState::kFailed,
          StrCat("slice ",
                 slice.state == SliceState::kDone ? Printable(slice.path) : SliceText(slice))};
}

WorkProgress CooldownProgress(const RunStatus& status) {
  const CooldownStatus& cooldown = status.monitor.cooldown;
  return {cooldown.number, static_cast<int>(cooldown.state),
          cooldown.state == CooldownState::kDone || cooldown.state == CooldownState::kFailed,
          cooldown.state == CooldownState::kFailed, StrCat("cooldown ", CooldownText(cooldown))};
}

RequestedWork::RequestedWork(Read read, int64_t number, std::chrono::nanoseconds deadline,
                             Clock* clock, Terminal* terminal)
    : read_(std::move(read)),
      number_(number),
      asked_(clock->Monotonic()),
      deadline_(deadline),
      clock_(clock),
      terminal_(terminal) {}

void RequestedWork::OnStatus(const RunStatus& status) {
  const WorkProgress progress = read_(status);
  if (progress.number < number_ && clock_->Monotonic() < asked_ + kOldestStatus) return;
  // The process was restarted, or other work was requested after this ended.
  lost_ = progress.number != number_;
  if (lost_) return;
  status_ = status;
  ended_ = progress.ended;
  const bool other_stage = std::exchange(stage_, progress.stage) != progress.stage;
  if (ended_) return;
  if (terminal_->terminal()) {
    terminal_->Status(progress.text);
  } else if (other_stage) {
    terminal_->Line(progress.text);
  }
}

void RequestedWork::OnNotice(std::string_view text) { terminal_->Notice(text); }

bool RequestedWork::OnTick(bool) {
  return !ended_ && !lost_ && clock_->Monotonic() < deadline_ && !terminal_->closed();
}

}  // namespace ptqwatch::internal
