#include "requested_slice.h"

#include "base/strings.h"
#include "status_text.h"

namespace ptqwatch::internal {

RequestedSlice::RequestedSlice(int32_t number, std::chrono::nanoseconds deadline, Clock* clock,
                               Terminal* terminal)
    : number_(number), deadline_(deadline), clock_(clock), terminal_(terminal) {}

void RequestedSlice::OnStatus(const v1::GetStatusResponse& status) {
  // What a server of run directories says of a run may be a second old.
  if (!status.run().empty() && status.slice().number() < number_) return;
  // The process was restarted, or somebody requested another slice after this one ended.
  lost_ = status.slice().number() != number_;
  if (lost_) return;
  const v1::SliceState before = slice_.state();
  slice_ = status.slice();
  if (ended()) return;
  const std::string text = StrCat("slice ", SliceText(slice_));
  if (terminal_->terminal()) {
    terminal_->Status(text);
  } else if (slice_.state() != before) {
    terminal_->Line(text);
  }
}

void RequestedSlice::OnNotice(std::string_view text) { terminal_->Notice(text); }

bool RequestedSlice::OnTick(bool) {
  return !ended() && !lost_ && clock_->Monotonic() < deadline_ && !terminal_->closed();
}

bool RequestedSlice::ended() const {
  return slice_.state() == v1::SLICE_STATE_DONE || slice_.state() == v1::SLICE_STATE_FAILED;
}

}  // namespace ptqwatch::internal
