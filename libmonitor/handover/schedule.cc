#include "handover/schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ptqwatch::internal {
namespace {

// log10 of a power of ten may be slightly too small.
constexpr double kRounding = 1e-9;

int64_t Floor(double x) { return static_cast<int64_t>(std::floor(std::clamp(x, -1.0, 9e18))); }

// floor(step / every * density) without rounding errors, and -1 before step 0.
int64_t CountOf(int64_t step, int64_t every, int64_t density) {
  if (step < 0) return -1;
  const auto unit = static_cast<uint64_t>(every);
  const auto times = static_cast<uint64_t>(density);
  const auto at = static_cast<uint64_t>(step);
  return static_cast<int64_t>(at / unit * times + at % unit * times / unit);
}

}  // namespace

Schedule::Kind Schedule::KindFor(int64_t every) const noexcept {
  if (every > 0) return Kind::kSteps;
  if (options_.every_seconds > 0) return Kind::kSeconds;
  return options_.log_spaced_per_decade > 0 ? Kind::kLogSpaced : Kind::kSteps;
}

Schedule::Counts Schedule::At(int64_t step, double now) const noexcept {
  const auto density = static_cast<double>(options_.decay_density);
  switch (KindFor(every_)) {
    case Kind::kSteps: {
      const int64_t every = every_ > 0 ? every_ : options_.every;
      return {CountOf(step, every, 1), CountOf(step, every, options_.decay_density)};
    }
    case Kind::kLogSpaced: {
      if (step < 1) return {};
      const double position = static_cast<double>(options_.log_spaced_per_decade) *
                              std::log10(static_cast<double>(step));
      return {Floor(position + kRounding), Floor(density * position + kRounding)};
    }
    case Kind::kSeconds: {
      const double position = (now - start_) / options_.every_seconds;
      return {Floor(position), Floor(density * position)};
    }
  }
  return {};
}

Due Schedule::Step(int64_t step, int64_t every, bool decaying, double now, int stretch) noexcept {
  const bool same = started_ && every == every_;
  if (!started_) start_ = now;
  started_ = true;
  every_ = every;
  Counts before = counts_;
  if (KindFor(every) == Kind::kSeconds) {
    if (!same) before = At(step, now);
  } else if (!same || step < step_) {
    before = At(step - 1, now);
  }
  counts_ = At(step, now);
  step_ = step;
  now_ = now;
  on_grid_ = counts_.dense > before.dense;
  // The part of the stretch that thins out regular snapshots too. Counts may be -1: shifts round
  // down.
  const int in_decay =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(options_.decay_density)));
  const int regular = std::max(0, stretch + 1 - in_decay);
  if (counts_.due >> regular > before.due >> regular) return Due::kYes;
  return decaying && counts_.dense >> stretch > before.dense >> stretch ? Due::kAdditional
                                                                        : Due::kNo;
}

double Schedule::SecondsToNext(double seconds_a_step) const noexcept {
  const auto next = static_cast<double>(counts_.due + 1);
  const auto step = static_cast<double>(step_);
  switch (KindFor(every_)) {
    case Kind::kSteps:
      return (next * static_cast<double>(every_ > 0 ? every_ : options_.every) - step) *
             seconds_a_step;
    case Kind::kLogSpaced:
      return (std::pow(10, next / static_cast<double>(options_.log_spaced_per_decade)) - step) *
             seconds_a_step;
    case Kind::kSeconds:
      return start_ + next * options_.every_seconds - now_;
  }
  return 0;
}

double SecondsBetween(const ScheduleOptions& options, int64_t every, int64_t step,
                      double seconds_a_step) {
  if (every > 0) return static_cast<double>(every) * seconds_a_step;
  if (options.every_seconds > 0) return options.every_seconds;
  if (options.log_spaced_per_decade == 0) {
    return static_cast<double>(options.every) * seconds_a_step;
  }
  const double ratio = std::pow(10, 1 / static_cast<double>(options.log_spaced_per_decade));
  return std::max(1.0, (ratio - 1) * static_cast<double>(step)) * seconds_a_step;
}

}  // namespace ptqwatch::internal
