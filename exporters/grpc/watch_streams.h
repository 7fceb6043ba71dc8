#ifndef PTQWATCH_GRPC_WATCH_STREAMS_H_
#define PTQWATCH_GRPC_WATCH_STREAMS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "feed/served_runs.h"
#include "grpcpp/support/server_callback.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "report_filter.h"

namespace ptqwatch::internal {

/// What a call of WatchReports or WatchEvents asks for.
struct Subscription {
  std::shared_ptr<const ServedRun> run;
  RunFeed::Wants wants = {};
  RunFeed::Position position = {};
  std::optional<int64_t> last =
      {};  ///< sequence of the last report that the client has, if it is known
  QuantizerFilter quantizers = {};
};

/// The open calls of WatchReports and WatchEvents. Each is a position in the feed of its run: it
/// reads on from there, first through the backlog and then live, without a gap or a duplicate
/// between the two, and has one message in memory. Thread-safe; gRPC is never called with a lock
/// held.
class WatchStreams {
 public:
  explicit WatchStreams(size_t max_streams) : max_streams_(max_streams) {}
  WatchStreams(const WatchStreams&) = delete;
  WatchStreams& operator=(const WatchStreams&) = delete;

  /// A stream that ends with UNAVAILABLE once the run is over and everything was sent; or one that
  /// ends at once, with the error or with RESOURCE_EXHAUSTED.
  grpc::ServerWriteReactor<v1::WatchReportsResponse>* WatchReports(
      absl::StatusOr<Subscription> subscription);
  grpc::ServerWriteReactor<v1::WatchEventsResponse>* WatchEvents(
      absl::StatusOr<Subscription> subscription);

  /// Sends what was published since.
  void Wake();
  /// The streams of a run whose clients are still connected.
  int CountOf(const ServedRun& run) const;
  /// False if a stream is still open at `until`.
  bool WaitUntilNone(std::chrono::steady_clock::time_point until);

 private:
  class Stream;
  template <typename Response>
  class TypedStream;
  template <typename Response>
  grpc::ServerWriteReactor<Response>* Open(absl::StatusOr<Subscription> subscription);
  void Forget(const Stream* stream);

  const size_t max_streams_;
  mutable Mutex mutex_;
  CondVar none_;
  std::vector<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);  // until gRPC is done
};

/// The codes of absl are those of gRPC.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_WATCH_STREAMS_H_
