#include "report_feed.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "wire_message.h"

namespace ptqwatch::internal {
namespace {

using grpc::Status;
using grpc::StatusCode;

// A default client takes messages of up to 4 MiB.
constexpr size_t kMaxPageBytes = size_t{3} << 20;
constexpr size_t kMaxEvents = 256;

size_t FormOf(bool with_layers) { return with_layers ? kFullForm : kWithoutLayersForm; }

Status Stopped() { return Status(StatusCode::UNAVAILABLE, "the monitor has stopped"); }

class RefusedStream final : public ReportFeed::Writer {
 public:
  explicit RefusedStream(Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

// One subscriber. The feed's mutex guards its members. At most one write is under way, and Finish
// waits for it, so a stream marked as writing or finished lives at least until the call that the
// mark announces.
class ReportFeed::Stream final : public Writer {
 public:
  explicit Stream(ReportFeed* owner) : feed(owner) {}
  void OnWriteDone(bool ok) override { feed->OnWritten(this, ok); }
  void OnCancel() override { feed->OnCancelled(this); }
  void OnDone() override {
    feed->OnDone(this);
    delete this;
  }

  ReportFeed* const feed;
  Subscription wants;
  int64_t position = 0;         // the next report is the first after this sequence
  int64_t event_position = 0;   // the next event is the first after this number
  int64_t missed_events = 0;    // since the last one that was sent
  std::optional<int64_t> last;  // sequence of the last report the client has
  size_t pending = 0;           // reports of the history not sent yet
  size_t allowance = 0;         // upper limit of `pending`; beyond it the oldest are skipped
  grpc::ByteBuffer message;     // being written
  bool writing = false;
  bool finished = false;
  std::optional<Status> end;  // how it ends once nothing is being written
};

ReportFeed::ReportFeed(const Limits& limits)
    : limits_(limits), history_(limits.history), events_(kMaxEvents) {}

ReportFeed::~ReportFeed() = default;

void ReportFeed::Open(StatusSource* source) {
  MutexLock lock(mutex_);
  source_ = source;
  state_ = State::kOpen;
}

void ReportFeed::Announce(int64_t sequence) {
  if (sequence > newest()) announced_.store(sequence, std::memory_order_release);
}

void ReportFeed::Publish(WireReport report) {
  std::vector<Action> actions;
  {
    MutexLock lock(mutex_);
    if (report.sequence <= history_.newest()) {
      if (source_ != nullptr) source_->CountDrop("grpc", "out_of_order");
      return;
    }
    const int64_t sequence = report.sequence;
    history_.Append(std::move(report));
    for (Stream* stream : streams_) {
      if (stream->end || !stream->wants.with_reports) continue;
      if (Status status = CheckSequence(stream->position); !status.ok()) stream->end = status;
      if (stream->position < sequence) ++stream->pending;
      for (int64_t lost = CountLost(*stream); lost > 0; --lost) {
        source_->CountDrop("grpc", "slow_subscriber");
      }
      actions.push_back(Next(*stream));
    }
  }
  for (const Action& action : actions) Perform(action);
}

void ReportFeed::Publish(WireEvent event) {
  std::vector<Action> actions;
  {
    MutexLock lock(mutex_);
    event.after_sequence = history_.newest();
    events_.Append(std::move(event));
    for (Stream* stream : streams_) {
      if (stream->wants.with_events) actions.push_back(Next(*stream));
    }
  }
  for (const Action& action : actions) Perform(action);
}

void ReportFeed::SetOver(bool over) {
  std::vector<Action> actions;
  {
    MutexLock lock(mutex_);
    if (std::exchange(over_, over) == over) return;
    for (Stream* stream : streams_) actions.push_back(Next(*stream));
  }
  for (const Action& action : actions) Perform(action);
}

void ReportFeed::Refuse() {
  MutexLock lock(mutex_);
  state_ = State::kRefusing;
}

void ReportFeed::Close() {
  std::vector<Action> actions;
  {
    MutexLock lock(mutex_);
    state_ = State::kClosed;
    for (Stream* stream : streams_) actions.push_back(Next(*stream));
  }
  for (const Action& action : actions) Perform(action);
}

bool ReportFeed::WaitUntilNobodyWatches(std::chrono::steady_clock::time_point until) {
  MutexLock lock(mutex_);
  while (!streams_.empty() && nobody_watches_.WaitUntil(mutex_, until)) {
  }
  return streams_.empty();
}

Status ReportFeed::CheckServing() const {
  MutexLock lock(mutex_);
  return CheckState();
}

ReportFeed::Writer* ReportFeed::Refused(Status status) {
  return new RefusedStream(std::move(status));
}

ReportFeed::Writer* ReportFeed::Subscribe(const Subscription& subscription) {
  auto stream = std::make_unique<Stream>(this);
  Action action;
  {
    MutexLock lock(mutex_);
    if (Status status = Accept(subscription, *stream); !status.ok()) {
      return Refused(std::move(status));
    }
    streams_.insert(stream.get());
    action = Next(*stream);
  }
  Writer* accepted = stream.release();
  // Tells the client that it will miss nothing from here on; the first report may be hours away.
  accepted->StartSendInitialMetadata();
  Perform(action);
  return accepted;
}

Status ReportFeed::List(int64_t after_sequence, int32_t limit, bool with_layers,
                        const QuantizerFilter& quantizers, grpc::ByteBuffer* response) const {
  if (limit < 0) {
    return Status(StatusCode::INVALID_ARGUMENT, StrCat("limit must not be negative, is ", limit));
  }
  MutexLock lock(mutex_);
  if (Status status = CheckState(); !status.ok()) return status;
  if (Status status = CheckSequence(after_sequence); !status.ok()) return status;
  std::vector<grpc::Slice> pieces;
  size_t bytes = 0;
  int32_t count = 0;
  int64_t next = history_.After(after_sequence);
  for (; next != 0; next = history_.After(next)) {
    const SharedBytes report = quantizers.Apply(history_.Bytes(next, FormOf(with_layers)));
    if (report == nullptr) continue;
    bytes += report->size();
    if (count > 0 && (count == limit || bytes > kMaxPageBytes)) break;
    AppendField(v1::ListReportsResponse::kReportsFieldNumber, report, &pieces);
    ++count;
  }
  v1::ListReportsResponse rest;
  rest.set_more(next != 0);
  rest.set_oldest_sequence(history_.oldest());
  pieces.emplace_back(rest.SerializeAsString());
  *response = grpc::ByteBuffer(pieces.data(), pieces.size());
  return Status::OK;
}

int32_t ReportFeed::subscribers() const {
  MutexLock lock(mutex_);
  return static_cast<int32_t>(CountWatching());
}

void ReportFeed::Perform(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kNothing:
      return;
    case Action::Kind::kWrite:
      return action.stream->StartWrite(&action.stream->message);
    case Action::Kind::kFinish:
      return action.stream->Finish(action.status);
  }
}

// Passes over events that the stream does not want.
const WireEvent* ReportFeed::NextEvent(Stream& stream) {
  if (!stream.wants.with_events) return nullptr;
  const WireEvent* event = events_.After(stream.event_position);
  while (event != nullptr) {
    stream.missed_events += event->number - stream.event_position - 1;
    if (stream.wants.events.Passes(*event)) break;
    stream.event_position = event->number;
    event = events_.After(stream.event_position);
  }
  // Of one that waits for its turn behind a report.
  if (event != nullptr) stream.event_position = event->number - 1;
  return event;
}

ReportFeed::Action ReportFeed::Next(Stream& stream) {
  if (stream.writing || stream.finished) return {};
  int64_t next = stream.wants.with_reports ? history_.After(stream.position) : 0;
  SharedBytes report;
  // A report whose file cannot be read is missed.
  while (next != 0 && !stream.end) {
    report = history_.Bytes(next, FormOf(stream.wants.with_layers));
    if (report != nullptr) break;
    stream.position = next;
    next = history_.After(next);
  }
  const WireEvent* const event = NextEvent(stream);
  const bool all_sent = next == 0 && event == nullptr;
  if (!stream.end && all_sent && (over_ || state_ == State::kClosed)) stream.end = Stopped();
  if (stream.end) {
    stream.finished = true;
    return {Action::Kind::kFinish, &stream, *stream.end};
  }
  if (event != nullptr && (next == 0 || event->after_sequence < next)) {
    stream.message = stream.wants.with_reports
                         ? MakeEventAmongReports(event->bytes)
                         : MakeEventResponse(event->bytes, stream.missed_events);
    stream.event_position = event->number;
    stream.missed_events = 0;
    stream.writing = true;
    return {Action::Kind::kWrite, &stream, Status::OK};
  }
  if (next == 0) return {};
  const int64_t missed = stream.last ? next - *stream.last - 1 : 0;
  stream.message = MakeReportResponse(stream.wants.quantizers.Apply(report), missed);
  stream.last = stream.position = next;
  stream.pending = history_.CountAfter(stream.position);
  // Shrinks as the stream reads its backlog, down to the limit for everyone.
  stream.allowance = std::min(stream.allowance, stream.pending + limits_.queue_reports);
  stream.writing = true;
  return {Action::Kind::kWrite, &stream, Status::OK};
}

// How many reports a stream loses by the one just published: those the history dropped for it, and
// those beyond the stream's allowance.
int64_t ReportFeed::CountLost(Stream& stream) {
  const size_t had = stream.pending;
  stream.pending = history_.CountAfter(stream.position);
  if (stream.pending > stream.allowance) {
    stream.position = history_.SequenceBefore(stream.allowance);
    stream.pending = stream.allowance;
  }
  return static_cast<int64_t>(had - stream.pending);
}

size_t ReportFeed::CountWatching() const {
  return static_cast<size_t>(std::count_if(streams_.begin(), streams_.end(),
                                           [](const Stream* stream) { return !stream->end; }));
}

Status ReportFeed::CheckState() const {
  switch (state_) {
    case State::kNotOpen:
      return Status(StatusCode::UNAVAILABLE, "the monitor has not started");
    case State::kOpen:
      return Status::OK;
    case State::kRefusing:
    case State::kClosed:
      break;
  }
  return Stopped();
}

Status ReportFeed::CheckSequence(int64_t after_sequence) const {
  if (after_sequence < 0) {
    return Status(StatusCode::INVALID_ARGUMENT,
                  StrCat("after_sequence must not be negative, is ", after_sequence));
  }
  // A resumed run continues from sequences that this process has not seen.
  if (newest() == 0 && source_->run().attempt > 1) return Status::OK;
  if (after_sequence <= newest()) return Status::OK;
  return Status(StatusCode::OUT_OF_RANGE, StrCat("after_sequence ", after_sequence,
                                                 " is beyond the newest report, ", newest()));
}

Status ReportFeed::Accept(const Subscription& subscription, Stream& stream) const {
  if (Status status = CheckState(); !status.ok()) return status;
  if (subscription.after_sequence) {
    if (Status status = CheckSequence(*subscription.after_sequence); !status.ok()) return status;
  }
  if (CountWatching() >= limits_.subscribers) {
    return Status(StatusCode::RESOURCE_EXHAUSTED,
                  StrCat(limits_.subscribers,
                         " clients are watching, the limit set by GrpcOptions::max_subscribers"));
  }
  if (subscription.after_event.value_or(0) < 0) {
    return Status(StatusCode::INVALID_ARGUMENT,
                  StrCat("after_event must not be negative, is ", *subscription.after_event));
  }
  // Numbers begin anew with each process: one of a former process would pass over what is new.
  if (!subscription.with_reports && subscription.after_event.value_or(0) > events_.newest()) {
    return Status(StatusCode::OUT_OF_RANGE,
                  StrCat("after_event ", *subscription.after_event, " is beyond the newest event, ",
                         events_.newest()));
  }
  stream.wants = subscription;
  stream.position = subscription.after_sequence.value_or(newest());
  // Before the first report of a resumed run the sequence before "the next one" is not known.
  if (subscription.after_sequence || newest() > 0) stream.last = stream.position;
  stream.pending = history_.CountAfter(stream.position);
  stream.allowance = stream.pending + limits_.queue_reports;
  stream.event_position = subscription.after_event.value_or(events_.newest());
  return Status::OK;
}

void ReportFeed::OnWritten(Stream* stream, bool ok) {
  Action action;
  {
    MutexLock lock(mutex_);
    stream->writing = false;
    stream->message.Clear();
    if (!ok && !stream->end) stream->end = Status::CANCELLED;
    action = Next(*stream);
  }
  Perform(action);
}

void ReportFeed::OnCancelled(Stream* stream) {
  Action action;
  {
    MutexLock lock(mutex_);
    if (!stream->end) stream->end = Status::CANCELLED;
    action = Next(*stream);
  }
  Perform(action);
}

void ReportFeed::OnDone(Stream* stream) {
  MutexLock lock(mutex_);
  streams_.erase(stream);
  if (streams_.empty()) nobody_watches_.SignalAll();
}

}  // namespace ptqwatch::internal
