#ifndef PTQWATCH_HANDOVER_STEP_CHECKS_H_
#define PTQWATCH_HANDOVER_STEP_CHECKS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// A mistake in what a trainer passes.
struct StepMistake {
  int64_t step = 0;  ///< at which it was found
  std::string text;
};

/// Finds mistakes in the arguments of OnStep: invalid learning rates, no rate at all, steps that do
/// not advance, and steps that start over. Reports each kind once per run.
class StepChecks {
 public:
  /// Called by OnStep's thread. O(1), no allocation. True if Take has a new mistake to return.
  bool OnStep(const StepInfo& info) noexcept;
  /// Monitor thread: returns the mistakes found since the last call.
  std::vector<StepMistake> Take();

 private:
  enum Mistake { kNoRate, kBadRate, kStepsStand, kStepsFall, kMistakes };
  enum class State { kNone, kFound, kReported };
  /// Written before the state becomes kFound, and read after that.
  struct Finding {
    std::atomic<State> state{State::kNone};
    int64_t step = 0;
    int64_t before = 0;
    std::optional<double> learning_rate;
    int64_t calls = 0;
  };
  bool Note(Mistake mistake, const StepInfo& info) noexcept;
  static std::string Text(Mistake mistake, const Finding& finding);

  std::array<Finding, kMistakes> findings_;
  std::optional<int64_t> last_step_;
  bool any_rate_ = false;
  int64_t calls_ = 0;
  int64_t repeats_ = 0;
  int64_t falls_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_STEP_CHECKS_H_
