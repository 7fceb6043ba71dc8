#ifndef PTQWATCH_BASE_EVENT_HISTORY_H_
#define PTQWATCH_BASE_EVENT_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/shared_bytes.h"

namespace ptqwatch::internal {

/// An event as an exporter sends it.
struct WireEvent {
  int64_t number = 0;
  /// Of the newest report when the event was published: streams send the event after that report.
  int64_t after_sequence = 0;
  /// As the exporter numbers them, for those who ask for some events only.
  int kind = 0;
  int severity = 0;
  SharedBytes bytes;
};

/// The newest events, numbered without gaps. Not thread-safe.
class EventHistory {
 public:
  /// REQUIRES: max_events > 0.
  explicit EventHistory(size_t max_events) : max_events_(max_events) {}

  /// REQUIRES: the number after newest(), where there is one.
  void Append(WireEvent event) {
    events_.push_back(std::move(event));
    if (events_.size() > max_events_) events_.pop_front();
  }
  /// The oldest event with a number above `number`; null where there is none. Valid until the next
  /// Append.
  const WireEvent* After(int64_t number) const {
    if (number >= newest()) return nullptr;
    const int64_t skipped = number - events_.front().number + 1;
    return &events_[skipped > 0 ? static_cast<size_t>(skipped) : 0];
  }
  int64_t oldest() const { return events_.empty() ? 0 : events_.front().number; }
  int64_t newest() const { return events_.empty() ? 0 : events_.back().number; }

 private:
  const size_t max_events_;
  std::deque<WireEvent> events_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_EVENT_HISTORY_H_
