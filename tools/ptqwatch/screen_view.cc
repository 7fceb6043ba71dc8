#include "screen_view.h"

#include <utility>

#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::nanoseconds;

// Keeps a backlog of reports from being drawn one by one.
constexpr nanoseconds kLeastBetweenFrames = std::chrono::milliseconds(50);
// Redraws ages on the screen as they grow.
constexpr nanoseconds kMostBetweenFrames = std::chrono::seconds(1);

}  // namespace

ScreenView::ScreenView(const WatchFlags* flags, Clock* clock, TextStyle style, Display display,
                       ReadLayers read_layers)
    : flags_(flags),
      clock_(clock),
      style_(style),
      display_(std::move(display)),
      read_layers_(std::move(read_layers)) {
  state_.target = flags->target.ToString();
}

bool ScreenView::OnReport(const AnalyzedReport& report, int64_t missed) {
  if (missed > 0) OnNotice(StrCat(missed, missed == 1 ? " report" : " reports", " missed"));
  state_.Add(report);
  changed_ = true;
  return ++reports_ != flags_->count;
}

void ScreenView::OnEvent(const Event& event) {
  // Omits the dashes that mark an event among rows of reports.
  state_.AddEvent({event.time_unix_seconds,
                   StrCat("step ", event.step, ", ", ToString(event.kind), ": ", event.message)});
  changed_ = true;
}

void ScreenView::OnStatus(const RunStatus& status) {
  if (state_.status && state_.status->run.run_id != status.run.run_id) {
    state_.ForgetRun();
    rate_ = {};
    layers_sequence_ = 0;
  }
  status_time_ = clock_->Monotonic();
  rate_.Add(status_time_, status.monitor.steps_total);
  state_.status = status;
  state_.steps_per_second = rate_.PerSecond();
  changed_ = true;
}

void ScreenView::OnNotice(std::string_view text) {
  state_.AddEvent({clock_->UnixSeconds(), std::string(text)});
  changed_ = true;
}

bool ScreenView::OnTick(bool connected) {
  if (state_.status && connected == state_.lost_unix_seconds.has_value()) {
    if (connected) {
      state_.lost_unix_seconds.reset();
    } else {
      state_.lost_unix_seconds = clock_->UnixSeconds();
      rate_ = {};
      state_.steps_per_second.reset();
    }
    changed_ = true;
  }
  if (!TakeKeys() || display_.closed()) return false;
  if (connected) ReadNewestLayers();
  DrawWhenDue();
  return true;
}

bool ScreenView::TakeKeys() {
  while (const char key = display_.key()) {
    if (key == 'q' || key == 'Q') return false;
    if (key == 'p' || key == 'P' || key == ' ') {
      state_.paused = !state_.paused;
      changed_ = true;
      drawn_time_.reset();
    }
  }
  return true;
}

void ScreenView::ReadNewestLayers() {
  if (!state_.newest || !state_.status || state_.paused) return;
  const int64_t sequence = state_.newest->report.sequence;
  // In a backlog, only the last report is of interest.
  if (sequence == layers_sequence_ || sequence < state_.status->monitor.last_sequence) return;
  layers_sequence_ = sequence;
  const std::optional<AnalyzedReport> report = read_layers_(sequence);
  if (!report) return;
  std::vector<LayerRow> layers = LayersOf(*report);
  if (layers.empty()) return;
  state_.layers = std::move(layers);
  state_.layers_step = report->report.step;
  changed_ = true;
}

void ScreenView::DrawWhenDue() {
  const nanoseconds now = clock_->Monotonic();
  const ScreenSize size = display_.size();
  const nanoseconds since = drawn_time_ ? now - *drawn_time_ : nanoseconds::max();
  const bool resized = size != drawn_size_;
  if (state_.paused && !resized && drawn_time_) return;
  if (!resized && since < (changed_ ? kLeastBetweenFrames : kMostBetweenFrames)) return;
  state_.now_unix_seconds = clock_->UnixSeconds();
  state_.silence_seconds = InSeconds(now - status_time_);
  display_.draw(WatchScreen(state_, size, style_));
  changed_ = false;
  drawn_time_ = now;
  drawn_size_ = size;
}

}  // namespace ptqwatch::internal
