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

/// A parsed WatchReports or WatchEvents request.
struct Subscription {
  std::shared_ptr<const ServedRun> run;
  RunFeed::Wants wants = {};
  RunFeed::Position position = {};
  std::optional<int64_t> last = {};  ///< sequence of the client's last report, if known
  QuantizerFilter quantizers = {};
};

/// The open WatchReports and WatchEvents calls. Each is a position in the feed of its run, so the
/// backlog and live reports follow without a gap or a duplicate, and each holds one message in
/// memory. Thread-safe; never calls gRPC with a lock held.
class WatchStreams {
 public:
  explicit WatchStreams(size_t max_streams) : max_streams_(max_streams) {}
  WatchStreams(const WatchStreams&) = delete;
  WatchStreams& operator=(const WatchStreams&) = delete;

  /// Returns a stream that ends with UNAVAILABLE once the run is over and everything was sent. If
  /// `subscription` is an error or too many streams are open, the stream ends at once with that
  /// error or with RESOURCE_EXHAUSTED.
  grpc::ServerWriteReactor<v1::WatchReportsResponse>* WatchReports(
      absl::StatusOr<Subscription> subscription);
  grpc::ServerWriteReactor<v1::WatchEventsResponse>* WatchEvents(
      absl::StatusOr<Subscription> subscription);

  /// Makes all streams send newly published data.
  void Wake();
  /// The number of streams of this run whose clients are still connected.
  int CountOf(const ServedRun& run) const;
  /// Waits for all streams to end. Returns false if one is still open at `until`.
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

/// Converts a status; absl and gRPC use the same codes.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_WATCH_STREAMS_H_
