#ifndef PTQWATCH_GRPC_REPORT_FEED_H_
#define PTQWATCH_GRPC_REPORT_FEED_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "base/event_history.h"
#include "base/mutex.h"
#include "base/report_history.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status.h"
#include "ptqwatch/exporter.h"
#include "report_filter.h"

namespace ptqwatch::internal {

/// The forms of a report in a feed: a v1::Report on the wire with its layers, and without.
inline constexpr size_t kFullForm = 0;
inline constexpr size_t kWithoutLayersForm = 1;

/// The reports and events of a run, and the streams that watch them. A subscriber is a position in
/// the shared history, not a queue: it reads on from there, first through the backlog and then
/// live, without a gap or a duplicate between the two, and a slow one costs no memory. Thread-safe;
/// gRPC is never called with the lock held.
class ReportFeed {
 public:
  struct Limits {
    size_t subscribers = 64;
    size_t queue_reports = 64;  ///< at most history.reports
    ReportHistory::Limits history;
  };
  struct Subscription {
    bool with_reports = true;  ///< without them, WatchEventsResponses are streamed
    std::optional<int64_t> after_sequence = std::nullopt;
    bool with_layers = true;
    QuantizerFilter quantizers = {};
    bool with_events = false;
    std::optional<int64_t> after_event = std::nullopt;
    EventFilter events = {};
  };
  using Writer = grpc::ServerWriteReactor<grpc::ByteBuffer>;

  explicit ReportFeed(const Limits& limits);
  ~ReportFeed();
  ReportFeed(const ReportFeed&) = delete;
  ReportFeed& operator=(const ReportFeed&) = delete;

  /// Serves from here on; what was published before is in the history. `source` counts what
  /// subscribers lose; it must outlive Close.
  void Open(StatusSource* source);
  /// A report with this sequence will be published or dropped: from here on a client may name it as
  /// one that the run has reached. One thread at a time.
  void Announce(int64_t sequence);
  /// Gives the report to all subscribers. A sequence that is not above the previous one is dropped
  /// and counted.
  void Publish(WireReport report);
  /// Gives the event to the subscribers with events, after the reports published so far. REQUIRES:
  /// the next number, from 1.
  void Publish(WireEvent event);
  /// Whether the run is over, as far as is known: a stream then ends with UNAVAILABLE once it has
  /// sent what there is.
  void SetOver(bool over);
  /// Accepts no more calls.
  void Refuse();
  /// Nothing more will be published: each stream ends with UNAVAILABLE once it has sent what is
  /// left. REQUIRES: Refuse.
  void Close();
  /// False if a stream is still open at `until`.
  bool WaitUntilNobodyWatches(std::chrono::steady_clock::time_point until);

  /// OK from Open to Refuse, UNAVAILABLE before and after.
  grpc::Status CheckServing() const;
  /// A stream that ends at once with `status`.
  static Writer* Refused(grpc::Status status);
  /// A stream of WatchReportsResponse or WatchEventsResponse, or a refused one.
  Writer* Subscribe(const Subscription& subscription);
  /// A ListReportsResponse of at most `limit` reports (0: any number) that a default client takes.
  grpc::Status List(int64_t after_sequence, int32_t limit, bool with_layers,
                    const QuantizerFilter& quantizers, grpc::ByteBuffer* response) const;
  /// Streams whose clients are still connected.
  int32_t subscribers() const;
  /// Sequence of the newest report that was announced; 0: none yet.
  int64_t newest() const { return announced_.load(std::memory_order_acquire); }

 private:
  class Stream;
  // What to do with a stream once the lock is released.
  struct Action {
    enum class Kind { kNothing, kWrite, kFinish } kind = Kind::kNothing;
    Stream* stream = nullptr;
    grpc::Status status;
  };
  static void Perform(const Action& action);

  const WireEvent* NextEvent(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Action Next(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t CountLost(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t CountWatching() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status CheckState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status CheckSequence(int64_t after_sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status Accept(const Subscription& subscription, Stream& stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void OnWritten(Stream* stream, bool ok);
  void OnCancelled(Stream* stream);
  void OnDone(Stream* stream);

  const Limits limits_;
  std::atomic<int64_t> announced_{0};

  enum class State { kNotOpen, kOpen, kRefusing, kClosed };

  mutable Mutex mutex_;
  CondVar nobody_watches_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNotOpen;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  StatusSource* source_ ABSL_GUARDED_BY(mutex_) = nullptr;
  ReportHistory history_ ABSL_GUARDED_BY(mutex_);
  EventHistory events_ ABSL_GUARDED_BY(mutex_);
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mutex_);  // until gRPC is done with them
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REPORT_FEED_H_
