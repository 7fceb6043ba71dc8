#ifndef PTQWATCH_FEED_JSON_FEED_H_
#define PTQWATCH_FEED_JSON_FEED_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/event_history.h"
#include "base/mutex.h"
#include "base/report_history.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The forms in which a feed has a report: all of the journal's JSON; that without the lists of
/// layers; and of that only what a chart draws over time.
enum class ReportForm { kFull, kWithoutLayers, kSeries };

/// The reports and events of a run as JSON, and where to read on. Readers are positions in one
/// history, so a slow one costs no memory. Thread-safe.
class JsonFeed {
 public:
  /// The newest report and event that a reader has.
  struct Position {
    int64_t sequence = 0;
    int64_t event = 0;
  };
  struct Message {
    bool is_event = false;
    int64_t missed = 0;  ///< reports that were dropped before this one
    SharedBytes json;
  };
  struct Page {
    std::string reports;  ///< JSON objects with commas between them
    bool more = false;    ///< there are later ones
    int64_t oldest = 0;   ///< sequences of what the feed has; 0: nothing
    int64_t newest = 0;
  };

  /// `changed` is called after each publication, on its thread; it must return at once.
  JsonFeed(const ReportHistory::Limits& limits, std::function<void()> changed);

  /// One thread at a time. False for a report whose sequence is not above those before it.
  bool Publish(const AnalyzedReport& report);
  void Publish(const Event& event);
  /// Nothing more will be published.
  void Close();

  bool closed() const;
  Position newest() const;
  /// The next report or event after `position`, which moves there; events come after the reports
  /// that were published before them.
  std::optional<Message> Next(Position& position, ReportForm form) const;
  /// At most `limit` reports and about three megabytes of them, but at least one.
  Page List(int64_t after_sequence, int64_t limit, ReportForm form) const;

 private:
  static constexpr size_t kMaxEvents = 256;

  const std::function<void()> changed_;
  // The history with this form, and its number there.
  std::pair<const ReportHistory*, size_t> Find(ReportForm form) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // With all layers a report may take a hundred times its series: of these there can be more.
  ReportHistory reports_ ABSL_GUARDED_BY(mutex_);
  ReportHistory series_ ABSL_GUARDED_BY(mutex_);
  EventHistory events_ ABSL_GUARDED_BY(mutex_);
};

/// Of a report what the charts of the page draw, with the journal's keys.
std::string SeriesJson(const AnalyzedReport& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_JSON_FEED_H_
