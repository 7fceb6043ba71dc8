#include "progress.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "console.h"

namespace ptqwatch::examples {
namespace {

constexpr std::chrono::milliseconds kShowEvery(100);
constexpr double kLossSmoothing = 0.02;

}  // namespace

Progress::Progress(int64_t steps) : steps_(steps), start_(Clock::now()), next_show_(start_) {}

Progress::~Progress() { Console::Get().Progress(""); }

void Progress::Update(int64_t step, double learning_rate, double loss) {
  // A plain mean for the first steps, then an exponential one.
  smooth_loss_ += std::max(kLossSmoothing, 1.0 / static_cast<double>(step)) * (loss - smooth_loss_);
  // Its sign bit would show as "-nan".
  smooth_loss_ = std::copysign(smooth_loss_, 1.0);
  const Clock::time_point now = Clock::now();
  Console& console = Console::Get();
  const int64_t tenths = step * 10 / steps_;
  const bool due = console.terminal() ? now >= next_show_ : tenths > tenths_;
  tenths_ = tenths;
  if (!due) return;
  next_show_ = now + kShowEvery;

  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double seconds_per_step = seconds / static_cast<double>(step);
  const auto left = std::llround(seconds_per_step * static_cast<double>(steps_ - step));
  const std::string text = absl::StrFormat(
      "%3d %%  ETA %d:%02d  step %d/%d  lr %.2e  loss %.4f  %.2f ms/step", step * 100 / steps_,
      left / 60, left % 60, step, steps_, learning_rate, smooth_loss_, 1e3 * seconds_per_step);
  if (console.terminal()) {
    console.Progress(text);
  } else {
    console.Line(text);
  }
}

}  // namespace ptqwatch::examples
