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

/// The encodings of a report that a feed keeps: the journal's JSON with and without the per-layer
/// lists, the JSON that a chart needs, and a serialized v1::Report with and without layers.
enum class ReportForm : size_t {
  kJson,
  kJsonWithoutLayers,
  kJsonSeries,
  kProto,
  kProtoWithoutLayers
};
inline constexpr size_t kReportForms = 5;
/// The function that makes each form; without a function, the form is empty.
using ReportForms = std::array<std::function<std::string(const AnalyzedReport&)>, kReportForms>;

/// The reports and the newest events of a run, encoded once for all clients. A reader is a position
/// in one shared history, so a slow reader costs no memory. Thread-safe.
class RunFeed {
 public:
  static constexpr size_t kMaxEvents = 256;

  /// The last report and event that a reader has received.
  struct Position {
    int64_t sequence = 0;
    int64_t event = 0;
    /// Next adds the number of events that were dropped unread; the reader resets it.
    int64_t lost_events = 0;
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
    bool more = false;   ///< later reports exist
    int64_t oldest = 0;  ///< first and last sequence in the feed; 0 if it is empty
    int64_t newest = 0;
  };

  /// Calls `changed` after each publication, on the publishing thread; it must return at once.
  RunFeed(const ReportHistory::Limits& limits, ReportForms forms, std::function<void()> changed);

  /// Adds a report and returns true, or returns false if its sequence is not above all earlier
  /// ones. Must not be called concurrently.
  bool Publish(const AnalyzedReport& report);
  void Publish(const Event& event);
  /// Marks the end: nothing is published after it.
  void Close();

  bool closed() const;
  /// True if the feed is closed, or if the newest item is the event that the monitor stopped.
  bool over() const;
  Position newest() const;
  /// Returns the next report or event after `position` and advances `position` past it. Events come
  /// after the reports published before them. Skips reports that can no longer be read.
  std::optional<Item> Next(Position& position, const Wants& wants) const;
  /// Returns up to `limit` reports (0: no limit) after `after_sequence`, but stops after about 3
  /// MiB. Returns at least one report if any exists.
  Page List(int64_t after_sequence, int64_t limit, ReportForm form) const;

 private:
  struct PublishedEvent {
    int64_t after_sequence = 0;  // sequence of the newest report when it was published
    std::shared_ptr<const Event> event;
  };
  // Returns the next event that `wants` selects, or null, and sets position.event to the number
  // before it.
  const PublishedEvent* NextEvent(Position& position, const Wants& wants) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ReportForms forms_;
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  ReportHistory reports_ ABSL_GUARDED_BY(mutex_);
  std::deque<PublishedEvent> events_ ABSL_GUARDED_BY(mutex_);
  int64_t newest_event_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last element of `events_`
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_RUN_FEED_H_
