#include "watch_streams.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "event_proto.h"

namespace ptqwatch::internal {
namespace {

template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(grpc::Status status) { this->Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

void SetReport(const RunFeed::Item& item, const QuantizerFilter& quantizers, v1::Report* report) {
  report->ParseFromString(*item.report);
  quantizers.Apply(report);
}

void SetEvent(const RunFeed::Item& item, int64_t number, v1::Event* event) {
  ToProto(*item.event, event);
  event->set_number(number);
}

void Fill(const RunFeed::Item& item, Subscription& reader, v1::WatchReportsResponse* response) {
  if (item.event != nullptr) {
    return SetEvent(item, reader.position.event, response->mutable_event());
  }
  SetReport(item, reader.quantizers, response->mutable_report());
  const int64_t sequence = reader.position.sequence;
  if (reader.last) response->set_missed(sequence - *reader.last - 1);
  reader.last = sequence;
}

void Fill(const RunFeed::Item& item, Subscription& reader, v1::WatchEventsResponse* response) {
  SetEvent(item, reader.position.event, response->mutable_event());
  response->set_missed(std::exchange(reader.position.lost_events, 0));
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ValidUtf8(Message(status)));
}

class WatchStreams::Stream {
 public:
  explicit Stream(std::shared_ptr<const ServedRun> served) : run(std::move(served)) {}
  virtual ~Stream() = default;
  /// Sends the next message or finishes the call. Does nothing during a write.
  virtual void Advance() = 0;
  virtual bool connected() const = 0;

  const std::shared_ptr<const ServedRun> run;
};

// At most one write is in progress, and Finish waits for it. gRPC calls OnDone only after Finish,
// so a stream marked as writing or finished stays alive until the matching OnWriteDone or OnDone.
template <typename Response>
class WatchStreams::TypedStream final : public Stream, public grpc::ServerWriteReactor<Response> {
 public:
  TypedStream(WatchStreams* streams, Subscription subscription)
      : Stream(subscription.run), streams_(streams), reader_(std::move(subscription)) {}

  void Advance() override {
    bool write = false;
    std::optional<grpc::Status> end;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_) return;
      // Read before the feed, so that an item published in between is not missed.
      const bool over = reader_.run->feed.over();
      std::optional<RunFeed::Item> item;
      if (connected_) item = reader_.run->feed.Next(reader_.position, reader_.wants);
      if (item) {
        response_.Clear();
        Fill(*item, reader_, &response_);
        write = writing_ = true;
      } else if (!connected_) {
        end = grpc::Status::CANCELLED;
      } else if (over) {
        end = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped");
      }
      finished_ = end.has_value();
    }
    if (write) this->StartWrite(&response_);
    if (end) this->Finish(*std::move(end));
  }
  bool connected() const override {
    MutexLock lock(mutex_);
    return connected_;
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      connected_ &= ok;
    }
    Advance();
  }
  void OnCancel() override {
    {
      MutexLock lock(mutex_);
      connected_ = false;
    }
    Advance();
  }
  void OnDone() override { streams_->Forget(this); }

 private:
  WatchStreams* const streams_;
  mutable Mutex mutex_;
  Subscription reader_ ABSL_GUARDED_BY(mutex_);
  bool connected_ ABSL_GUARDED_BY(mutex_) = true;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  Response response_;  // owned by gRPC while writing_
};

template <typename Response>
grpc::ServerWriteReactor<Response>* WatchStreams::Open(absl::StatusOr<Subscription> subscription) {
  if (!subscription.ok()) return new RefusedStream<Response>(ToGrpc(subscription.status()));
  auto stream = std::make_shared<TypedStream<Response>>(this, *std::move(subscription));
  {
    MutexLock lock(mutex_);
    if (streams_.size() >= max_streams_) {
      return new RefusedStream<Response>(
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       StrCat(max_streams_, " clients are watching, which is the limit")));
    }
    streams_.push_back(stream);
  }
  // The headers tell the client that it misses nothing from here on. The first report may be hours
  // away.
  stream->StartSendInitialMetadata();
  stream->Advance();
  return stream.get();
}

grpc::ServerWriteReactor<v1::WatchReportsResponse>* WatchStreams::WatchReports(
    absl::StatusOr<Subscription> subscription) {
  return Open<v1::WatchReportsResponse>(std::move(subscription));
}

grpc::ServerWriteReactor<v1::WatchEventsResponse>* WatchStreams::WatchEvents(
    absl::StatusOr<Subscription> subscription) {
  return Open<v1::WatchEventsResponse>(std::move(subscription));
}

void WatchStreams::Wake() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->Advance();
}

int WatchStreams::CountOf(const ServedRun& run) const {
  MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(streams_.begin(), streams_.end(), [&](const auto& stream) {
    return stream->run.get() == &run && stream->connected();
  }));
}

bool WatchStreams::WaitUntilNone(std::chrono::steady_clock::time_point until) {
  MutexLock lock(mutex_);
  while (!streams_.empty() && none_.WaitUntil(mutex_, until)) {
  }
  return streams_.empty();
}

void WatchStreams::Forget(const Stream* stream) {
  std::shared_ptr<Stream> last;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const auto& open) { return open.get() == stream; });
  last = std::move(*found);
  streams_.erase(found);
  if (streams_.empty()) none_.SignalAll();
}

}  // namespace ptqwatch::internal
