#include "reaction.h"

#include <cstdio>

namespace ptqwatch::examples {

Reaction::Reaction(const ActFlags& flags, torch::nn::Module& model)
    : flags_(flags), window_(model, flags.average_window) {}

std::function<void(const AnalyzedReport&)> Reaction::OnAlert() const {
  return [alarm = alarm_](const AnalyzedReport& analyzed) {
    // Before the decay begins there is nothing to end.
    if (!analyzed.report.decay_onset_step) return;
    int64_t none = kNone;
    alarm->compare_exchange_strong(none, analyzed.report.step);
  };
}

double Reaction::LearningRate(int64_t step) {
  if (!decay_ended_ && flags_.act != Act::kIgnore && alarm_step()) {
    decay_ended_ = true;
    std::printf("the learning rate stays at %.3e from step %lld on\n", learning_rate_,
                static_cast<long long>(step + 1));
  }
  if (!decay_ended_) learning_rate_ = flags_.recipe.schedule.LearningRate(step);
  return learning_rate_;
}

void Reaction::AfterStep(int64_t step) {
  if (flags_.act == Act::kAverage && step % flags_.average_every == 0) window_.Add();
}

void Reaction::Finish() {
  if (flags_.act != Act::kAverage || !alarm_step() || window_.copies() == 0) return;
  window_.LoadMean();
  std::printf("the weights are the mean of %lld copies, %lld steps apart\n",
              static_cast<long long>(window_.copies()),
              static_cast<long long>(flags_.average_every));
}

std::optional<int64_t> Reaction::alarm_step() const {
  const int64_t step = alarm_->load();
  return step == kNone ? std::nullopt : std::optional(step);
}

}  // namespace ptqwatch::examples
