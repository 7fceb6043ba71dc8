#include "handover/slot_page.h"

namespace ptqwatch::internal {

void SlotPage::TakeOver() noexcept {
  if (state() == SlotState::kLoading) Release();
  const int64_t number = begun();
  if (number == done()) return;
  // A snapshot that ends every process is not tried a third time.
  const bool again = attempts() == number && again_.exchange(number) != number;
  SlotState state = SlotState::kFree;
  if (again &&
      (state_.compare_exchange_strong(state, SlotState::kFilled) || state == SlotState::kFilled)) {
    if (attempts() == number) return;
    Release();  // the trainer's half was faster, and failed
  }
  lost_.fetch_add(1);
  if (attempts() == number) {
    taken_step_.store(kNoStep);
    if (filled()) Release();
  }
  Done();
}

}  // namespace ptqwatch::internal
