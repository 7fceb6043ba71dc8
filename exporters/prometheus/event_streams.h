#ifndef PTQWATCH_PROMETHEUS_EVENT_STREAMS_H_
#define PTQWATCH_PROMETHEUS_EVENT_STREAMS_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "base/thread.h"
#include "channel.h"
#include "json_feed.h"

namespace ptqwatch::internal {

/// Streams of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html):
/// `report`, `event` and `status` messages of a run. One thread writes all of them and never waits
/// for a client, so that streams keep no worker of the HTTP server from its scrapes. A client that
/// takes nothing for 20 s is closed. Thread-safe.
class EventStreams {
 public:
  struct Options {
    size_t max_streams = 64;
    /// The JSON of a run's status; empty where the run is shown no more. Called by the thread.
    std::function<std::string(const std::string& run)> status;
    std::chrono::milliseconds status_interval{1000};
  };
  struct Subscription {
    std::string run;
    std::shared_ptr<const JsonFeed> feed;
    JsonFeed::Position position;
    ReportForm form = ReportForm::kWithoutLayers;
  };

  /// ResourceExhausted where there is no thread or descriptor for it.
  static absl::StatusOr<std::unique_ptr<EventStreams>> Start(Options options);
  ~EventStreams();
  EventStreams(const EventStreams&) = delete;
  EventStreams& operator=(const EventStreams&) = delete;

  /// Whether one more stream may be opened.
  bool HasRoom() const;
  /// Closes the channel where there is no room any more.
  void Add(std::unique_ptr<Channel> channel, Subscription subscription);
  /// Something was published. Async-signal-safe; returns at once.
  void Wake() const noexcept;
  /// Closes all streams and joins the thread. Idempotent.
  void Stop();

 private:
  struct Stream;
  using Time = std::chrono::steady_clock::time_point;

  EventStreams(Options options, int wake);
  void Run();
  void TakeNew();
  void SendStatuses();
  // False where the stream has ended.
  bool Advance(Stream& stream, Time now);
  bool Flush(Stream& stream, Time now);
  void WaitForSomething(Time until);
  bool stopping() const;

  const ProcessMark process_;
  const Options options_;
  const int wake_;  // an eventfd
  std::atomic<size_t> open_{0};
  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Stream>> new_ ABSL_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Stream>> streams_;  // the thread's
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_EVENT_STREAMS_H_
