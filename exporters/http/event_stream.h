#ifndef PTQWATCH_HTTP_EVENT_STREAM_H_
#define PTQWATCH_HTTP_EVENT_STREAM_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "feed/run_feed.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Encodes the reports, events and status of a run as server-sent events
/// (https://html.spec.whatwg.org/multipage/server-sent-events.html). Holds a position in the feed
/// and no message, so a client that reads slowly costs no memory. Not thread-safe.
class EventStream {
 public:
  /// Starts every stream; makes the client reconnect after two seconds.
  static constexpr char kOpening[] = "retry: 2000\n\n";

  /// Starts after `position`. `status` returns the status of the run as JSON, or an empty string
  /// once the run is no longer served.
  EventStream(std::shared_ptr<const RunFeed> feed, RunFeed::Position position, ReportForm form,
              std::function<std::string()> status, Clock* clock = Clock::Real());

  /// Returns the next messages, up to about 64 KiB but at least one if available. Empty if there is
  /// nothing to send yet, nullopt after the last message. Sends a changed status at most once a
  /// second.
  std::optional<std::string> Next();

 private:
  std::string NewStatus();

  const std::shared_ptr<const RunFeed> feed_;
  RunFeed::Position position_;
  const RunFeed::Wants wants_;
  const std::function<std::string()> status_;
  Clock* const clock_;
  std::string sent_status_;
  std::chrono::nanoseconds next_status_;
  std::chrono::nanoseconds last_sent_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_EVENT_STREAM_H_
