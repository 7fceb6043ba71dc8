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

/// The `report`, `event` and `status` messages of a run as server-sent events
/// (https://html.spec.whatwg.org/multipage/server-sent-events.html). Holds a position in the feed
/// and no message, so a client that reads slowly costs no memory. One thread at a time.
class EventStream {
 public:
  /// The beginning of a stream: the client tries again after two seconds.
  static constexpr char kOpening[] = "retry: 2000\n\n";

  /// Begins after `position`. `status` gives the JSON of the run's status, empty once the run is no
  /// longer shown.
  EventStream(std::shared_ptr<const RunFeed> feed, RunFeed::Position position, ReportForm form,
              std::function<std::string()> status, Clock* clock = Clock::Real());

  /// The messages that follow, about 64 KiB and at least one if there is any; empty if there is
  /// none yet, nullopt after the last. A status that has changed is sent once a second.
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
