#ifndef PTQWATCH_FEED_RUN_FEED_H_
#define PTQWATCH_FEED_RUN_FEED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "feed/report_history.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The forms in which a feed has a report: the journal's JSON, the same without the lists of
/// layers, what a chart draws over time, and a v1::Report on the wire with and without layers.
enum class ReportForm : size_t {
  kJson,
  kJsonWithoutLayers,
  kJsonSeries,
  kProto,
  kProtoWithoutLayers
};
inline constexpr size_t kReportForms = 5;
/// Makes each form; a form without a function stays empty.
using ReportForms = std::array<std::function<std::string(const AnalyzedReport&)>, kReportForms>;

/// The reports and the newest events of a run, in the forms in which its servers send them. Readers
/// are positions in one history, so a slow one costs no memory. Thread-safe.
class RunFeed {
 public:
  static constexpr size_t kMaxEvents = 256;

  /// The newest report and event that a reader has.
  struct Position {
    int64_t sequence = 0;
    int64_t event = 0;
    int64_t lost_events =
        0;  ///< Next adds those that the feed no longer had; the reader's to reset
  };
  struct Wants {
    ReportForm form = ReportForm::kJsonWithoutLayers;
    bool reports = true;
    bool events = true;
    std::function<bool(const Event&)> passes = nullptr;  ///< null: every event
  };
  /// A report or an event.
  struct Item {
    SharedBytes report;  ///< null for an event
    std::shared_ptr<const Event> event;
  };
  struct Page {
    std::vector<SharedBytes> reports;
    bool more = false;   ///< there are later ones
    int64_t oldest = 0;  ///< sequences of what the feed has; 0: nothing
    int64_t newest = 0;
  };

  /// `changed` is called after each publication, on its thread; it must return at once.
  RunFeed(const ReportHistory::Limits& limits, ReportForms forms, std::function<void()> changed);

  /// One thread at a time. False for a report whose sequence is not above those before it.
  bool Publish(const AnalyzedReport& report);
  void Publish(const Event& event);
  /// Nothing more will be published.
  void Close();

  bool closed() const;
  /// Closed, or the run's monitor has stopped and nothing has come since.
  bool over() const;
  Position newest() const;
  /// The next report or event after `position`, which moves there; events come after the reports
  /// that were published before them. A report that cannot be read any more is passed over.
  std::optional<Item> Next(Position& position, const Wants& wants) const;
  /// At most `limit` reports and about three megabytes of them, but at least one.
  Page List(int64_t after_sequence, int64_t limit, ReportForm form) const;

 private:
  struct PublishedEvent {
    int64_t after_sequence = 0;  // of the newest report at the time
    std::shared_ptr<const Event> event;
  };
  // The next event that the reader wants, which then has the number after position.event.
  const PublishedEvent* NextEvent(Position& position, const Wants& wants) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ReportForms forms_;
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  ReportHistory reports_ ABSL_GUARDED_BY(mutex_);
  std::deque<PublishedEvent> events_ ABSL_GUARDED_BY(mutex_);
  int64_t newest_event_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of the last of `events_`
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_RUN_FEED_H_
