#ifndef PTQWATCH_ACT_ON_ALERT_REACTION_H_
#define PTQWATCH_ACT_ON_ALERT_REACTION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "act_flags.h"
#include "ptqwatch/report.h"
#include "weight_window.h"

namespace ptqwatch::examples {

/// The trainer's reaction to an alarm. Used on the trainer's thread, except for OnAlert's result.
class Reaction {
 public:
  /// `model` must outlive this object.
  Reaction(const ActFlags& flags, torch::nn::Module& model);

  /// For MonitorOptions::on_alert. The function only sets an atomic, whose ownership it shares with
  /// this object, because the monitor thread may outlive both.
  std::function<void(const AnalyzedReport&)> OnAlert() const;

  /// The rate for step 0, 1, ...: the schedule's, until an alarm ends the decay.
  double LearningRate(int64_t step);
  /// Call after each step: 1, 2, ...
  void AfterStep(int64_t step);
  /// Call after the last step. Gives the model the weights that the run ends with.
  void Finish();

  /// The step of the report with the alarm; empty without an alarm.
  std::optional<int64_t> alarm_step() const;

 private:
  // The snapshot's step, or kNone.
  using AlarmStep = std::atomic<int64_t>;
  static constexpr int64_t kNone = -1;

  const ActFlags flags_;
  const std::shared_ptr<AlarmStep> alarm_ = std::make_shared<AlarmStep>(kNone);
  WeightWindow window_;
  double learning_rate_ = 0;  // at the last step
  bool decay_ended_ = false;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_ACT_ON_ALERT_REACTION_H_
