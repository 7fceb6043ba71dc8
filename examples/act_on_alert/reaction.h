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

/// What the trainer does about an alarm. All of it on the trainer's thread, except what OnAlert
/// returns.
class Reaction {
 public:
  /// `model` must outlive this object.
  Reaction(const ActFlags& flags, torch::nn::Module& model);

  /// For MonitorOptions::on_alert. It only sets an atomic, which it owns together with this object:
  /// the monitor thread may outlive both.
  std::function<void(const AnalyzedReport&)> OnAlert() const;

  /// For step 0, 1, ...: what the schedule says, until an alarm ends it.
  double LearningRate(int64_t step);
  /// After each step: 1, 2, ...
  void AfterStep(int64_t step);
  /// After the last step: the model gets the weights that the run ends with.
  void Finish();

  /// Step of the report with the alarm.
  std::optional<int64_t> alarm_step() const;

 private:
  // Of the snapshot, or kNone.
  using AlarmStep = std::atomic<int64_t>;
  static constexpr int64_t kNone = -1;

  const ActFlags flags_;
  const std::shared_ptr<AlarmStep> alarm_ = std::make_shared<AlarmStep>(kNone);
  WeightWindow window_;
  double learning_rate_ = 0;  // of the last step
  bool decay_ended_ = false;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_ACT_ON_ALERT_REACTION_H_
