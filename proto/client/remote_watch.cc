#include "client/remote_watch.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/strings.h"
#include "base/utf8.h"
#include "event_proto.h"
#include "report_proto.h"
#include "status_proto.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kMaxFirstWait = std::chrono::seconds(10);
// A run followed to its end may never come back.
constexpr nanoseconds kMaxLastWait = std::chrono::seconds(60);

bool IsWorthAnotherTry(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

}  // namespace

RemoteWatch::RemoteWatch(Target target, WatchOptions options, Clock* clock, WatchListener* listener)
    : target_(std::move(target)),
      options_(options),
      clock_(clock),
      listener_(listener),
      after_(options.after_sequence),
      // Skips events from before the first requested report, too.
      after_event_(options.after_sequence == 0 ? std::optional<int64_t>(0) : std::nullopt),
      last_contact_(clock->Monotonic()),
      backoff_(options.first_backoff) {}

absl::Status RemoteWatch::Run() {
  while (true) {
    const nanoseconds start = clock_->Monotonic();
    const grpc::Status ended = Session();
    if (stopped_) return absl::OkStatus();
    if (connected_) {
      last_contact_ = clock_->Monotonic();
      if (last_contact_ - start > options_.longest_backoff) backoff_ = options_.first_backoff;
    }
    if (options_.exit_when_done && MonitorHasStopped(ended)) return absl::OkStatus();
    if (absl::Status verdict = Judge(ended); !verdict.ok()) return verdict;
    const nanoseconds left = Patience() - (clock_->Monotonic() - last_contact_);
    if (left <= nanoseconds::zero()) return ExplainFailure(ended, target_);
    if (!Sleep(std::min(backoff_, left))) return absl::OkStatus();
    backoff_ = std::min<nanoseconds>(2 * backoff_, options_.longest_backoff);
  }
}

nanoseconds RemoteWatch::Patience() const {
  if (options_.give_up_after.has_value()) return *options_.give_up_after;
  if (!reached_) return kMaxFirstWait;
  return options_.exit_when_done ? kMaxLastWait : nanoseconds::max();
}

grpc::Status RemoteWatch::Session() {
  connected_ = false;
  Connection connection(target_);
  v1::GetStatusResponse status;
  if (const grpc::Status answer = connection.GetStatus(&status); !answer.ok()) return answer;
  Greet(FromProto(status));
  reached_ = connected_ = true;
  last_contact_ = clock_->Monotonic();
  if (stopped_) return grpc::Status::OK;
  return Stream(&connection);
}

void RemoteWatch::Greet(const RunStatus& status) {
  const bool renamed = !run_id_.empty() && run_id_ != status.run.run_id;
  // A resumed run continues its counters; a run started again under its old name counts from 1.
  const bool restarted = !run_id_.empty() && !renamed && status.run.attempt == attempt_ &&
                         status.monitor.steps_total < steps_total_;
  if (renamed) {
    listener_->OnNotice(StrCat("another run is at ", target_.ToString(), " now: ",
                               Quoted(status.run.run_id), " in place of ", Quoted(run_id_)));
  } else if (restarted) {
    listener_->OnNotice(
        StrCat("the run ", Quoted(run_id_), " at ", target_.ToString(), " was started again"));
  }
  // A server without a name for its run is replaced with its trainer and numbers events from 1;
  // other servers continue the numbers of the journal.
  const bool resumed = attempt_ != 0 && status.run.attempt != attempt_ && status.name.empty();
  if (renamed || restarted || resumed) {
    after_event_ = 0;
  }
  if (renamed || restarted) {
    after_ = 0;
    seen_ = {};
    resuming_ = false;
    lost_ = false;
  }
  run_id_ = status.run.run_id;
  attempt_ = status.run.attempt;
  steps_total_ = status.monitor.steps_total;
  // Keeps the meaning of "now" across reconnections. Without a report yet, the first sequence is
  // unknown because the run may be a resumed one, but all its reports are new.
  if (!after_.has_value() && (reached_ || status.monitor.last_sequence > 0)) {
    after_ = reached_ ? 0 : status.monitor.last_sequence;
    resuming_ = true;
  }
  if (!reached_) until_ = status.monitor.last_sequence;
  if (options_.until_now && after_.value_or(until_) >= until_) stopped_ = true;
  listener_->OnStatus(status);
}

grpc::Status RemoteWatch::Stream(Connection* connection) {
  v1::WatchReportsRequest request;
  if (after_.has_value()) request.set_after_sequence(*after_);
  request.set_without_layers(options_.without_layers);
  request.set_run_id(target_.run.empty() ? run_id_ : target_.run);
  request.set_with_events(true);
  if (after_event_.has_value()) request.set_after_event(*after_event_);
  ReportStream stream(connection, request);
  nanoseconds asked = clock_->Monotonic();
  while (true) {
    switch (stream.Next(std::chrono::system_clock::now() + options_.tick)) {
      case ReportStream::Result::kResponse:
        NoteContact();
        stopped_ = !Accept(stream.response());
        break;
      case ReportStream::Result::kStatus:
        if (stream.status_code().ok()) listener_->OnStatus(FromProto(stream.status_response()));
        break;
      case ReportStream::Result::kNothing:
        NoteContact();
        break;
      case ReportStream::Result::kEnded:
        return stream.ended();
    }
    if (stopped_ || !listener_->OnTick(true)) {
      stopped_ = true;
      return grpc::Status::OK;
    }
    if (options_.status_every && clock_->Monotonic() - asked >= *options_.status_every) {
      asked = clock_->Monotonic();
      stream.AskStatus();
    }
  }
}

void RemoteWatch::NoteContact() {
  if (lost_) listener_->OnNotice("connected again");
  lost_ = false;
  streamed_ = true;
}

bool RemoteWatch::Accept(const v1::WatchReportsResponse& response) {
  backoff_ = options_.first_backoff;
  if (response.has_event()) {
    if (response.event().number() <= after_event_.value_or(0)) return true;
    after_event_ = response.event().number();
    if (!v1::EventKind_IsValid(response.event().kind())) return true;  // from a later version
    listener_->OnEvent(FromProto(response.event()));
    return true;
  }
  const AnalyzedReport analyzed = FromProto(response.report());
  const int64_t sequence = analyzed.report.sequence;
  if (!seen_.Add(analyzed.report) || sequence <= after_.value_or(0)) return true;
  after_ = sequence;
  resuming_ = true;
  if (!listener_->OnReport(analyzed, response.missed())) return false;
  return !options_.until_now || sequence < until_;
}

absl::Status RemoteWatch::Judge(const grpc::Status& ended) {
  // A retry would fail the same way.
  if (MessageWasTooLarge(ended)) return ExplainFailure(ended, target_);
  if (ended.error_code() == grpc::StatusCode::OUT_OF_RANGE) {
    if (!resuming_) return ExplainFailure(ended, target_);
    listener_->OnNotice(StrCat("the run ", Quoted(run_id_), " at ", target_.ToString(),
                               " starts again before report ", after_.value_or(0)));
    after_ = after_event_ = 0;
    seen_ = {};
    resuming_ = false;
    backoff_ = options_.first_backoff;
  }
  if (!streamed_ && !ended.ok() && !IsWorthAnotherTry(ended)) {
    return ExplainFailure(ended, target_);
  }
  if (reached_ && !lost_) {
    lost_ = true;
    listener_->OnNotice(
        StrCat("connection lost, trying again (",
               ended.ok() ? "the server ended the stream" : Printable(ended.error_message()), ")"));
  }
  return absl::OkStatus();
}

bool RemoteWatch::Sleep(nanoseconds duration) {
  static const std::atomic<bool> never{false};
  const nanoseconds end = clock_->Monotonic() + duration;
  while (true) {
    if (!listener_->OnTick(false)) return false;
    const nanoseconds left = end - clock_->Monotonic();
    if (left <= nanoseconds::zero()) return true;
    clock_->SleepFor(std::min<nanoseconds>(left, options_.tick), never);
  }
}

}  // namespace ptqwatch::internal
