#include "leg_queue.h"

#include <algorithm>

namespace ptqwatch::examples {

LegQueue::LegQueue(const std::vector<Leg>& legs, const std::function<bool(const Leg&)>& is_finished)
    : legs_(legs) {
  for (const Leg& leg : legs)
    state_[leg.id] = is_finished(leg) ? State::kFinished : State::kWaiting;
}

const Leg* LegQueue::Take() {
  const auto leg = std::find_if(legs_.begin(), legs_.end(), [this](const Leg& candidate) {
    return state_.at(candidate.id) == State::kWaiting &&
           std::all_of(candidate.needs.begin(), candidate.needs.end(),
                       [this](const auto& need) { return state_.at(need) == State::kFinished; });
  });
  if (leg == legs_.end()) return nullptr;
  state_[leg->id] = State::kTaken;
  return &*leg;
}

size_t LegQueue::Count(State state) const {
  return static_cast<size_t>(std::count_if(
      state_.begin(), state_.end(), [state](const auto& item) { return item.second == state; }));
}

}  // namespace ptqwatch::examples
