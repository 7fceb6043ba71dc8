#include "watch_view.h"

#include "base/strings.h"
#include "printable.h"
#include "ptqwatch/event.h"
#include "text_table.h"

namespace ptqwatch::internal {
namespace {

/// The status comes once a second; after a longer silence, the status line says so.
constexpr double kMinSilenceSeconds = 3;

}  // namespace

WatchView::WatchView(const WatchFlags* flags, Clock* clock, Terminal* terminal)
    : flags_(flags), clock_(clock), terminal_(terminal), table_(terminal->style()) {}

bool WatchView::OnReport(const AnalyzedReport& report, int64_t missed) {
  if (missed > 0) ShowGap(missed);
  newest_unix_seconds_ = report.report.snapshot_time_unix_seconds;
  if (flags_->json) {
    terminal_->JsonLine(ToJson(report));
  } else {
    ShowRow(report);
  }
  ++reports_;
  return reports_ != flags_->count && !terminal_->closed();
}

void WatchView::OnEvent(const Event& event) {
  if (flags_->json) return terminal_->JsonLine(EventToJson(event));
  terminal_->Line(EventText(event));
  ++rows_since_header_;
}

void WatchView::ShowGap(int64_t missed) {
  const std::string text = StrCat("... ", missed, missed == 1 ? " report" : " reports", " missed");
  if (flags_->json) {
    terminal_->Notice(text);
  } else {
    terminal_->Line(text);
    ++rows_since_header_;
  }
}

void WatchView::ShowRow(const AnalyzedReport& report) {
  // The header and the status line take two rows of the screen.
  if (terminal_->terminal() && rows_since_header_ + 2 >= terminal_->rows()) table_.RepeatHeader();
  const ReportTable::Lines lines =
      table_.Add(report, terminal_->terminal() ? terminal_->columns() : kUnlimitedColumns);
  if (lines.header.has_value()) {
    terminal_->Line(*lines.header);
    rows_since_header_ = 0;
  }
  terminal_->Line(lines.row);
  ++rows_since_header_;
}

void WatchView::OnStatus(const RunStatus& status) {
  if (status_.has_value() && status_->run.run_id != status.run.run_id) {
    newest_unix_seconds_.reset();
    rate_ = {};
  }
  status_ = status;
  status_time_ = clock_->Monotonic();
  rate_.Add(status_time_, status.monitor.steps_total);
}

void WatchView::OnNotice(std::string_view text) { terminal_->Notice(text); }

bool WatchView::OnTick(bool connected) {
  if (terminal_->terminal()) terminal_->Status(StatusNow(connected));
  if (!connected) rate_ = {};
  return !terminal_->closed();
}

std::string WatchView::StatusNow(bool connected) const {
  const std::chrono::duration<double> silence = clock_->Monotonic() - status_time_;
  if (!status_.has_value()) return StrCat("connecting to ", flags_->target.ToString());
  if (!connected) {
    return StrCat("no connection to ", flags_->target.ToString(), " | last answer ",
                  AgeText(silence.count()), " ago");
  }
  std::optional<double> age;
  if (newest_unix_seconds_.has_value()) age = clock_->UnixSeconds() - *newest_unix_seconds_;
  std::string line = StatusLine(status_->monitor, rate_.PerSecond(), age);
  if (silence.count() > kMinSilenceSeconds) {
    line += StrCat(" | no answer for ", AgeText(silence.count()));
  }
  return line;
}

}  // namespace ptqwatch::internal
