#ifndef PTQWATCH_LR_DECAY_STUDY_LEG_QUEUE_H_
#define PTQWATCH_LR_DECAY_STUDY_LEG_QUEUE_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "leg.h"

namespace ptqwatch::examples {

/// Which legs can be made, in the order in which they were given.
class LegQueue {
 public:
  /// `legs` must outlive this object. Those for which `is_finished` need not be made.
  LegQueue(const std::vector<Leg>& legs, const std::function<bool(const Leg&)>& is_finished);

  /// Takes the first leg that is not begun and whose needs are finished; null where there is none.
  const Leg* Take();
  void Finished(const Leg& leg) { state_[leg.id] = State::kFinished; }
  void Failed(const Leg& leg) { state_[leg.id] = State::kFailed; }

  size_t finished() const { return Count(State::kFinished); }
  size_t failed() const { return Count(State::kFailed); }
  size_t size() const { return legs_.size(); }

 private:
  enum class State { kWaiting, kTaken, kFinished, kFailed };
  size_t Count(State state) const;

  const std::vector<Leg>& legs_;
  std::map<std::string, State> state_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_LEG_QUEUE_H_
