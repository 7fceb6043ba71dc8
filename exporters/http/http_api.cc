#include "http/http_api.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "http/event_stream.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();
constexpr std::chrono::milliseconds kStatusAge{250};

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpResponse JsonResponse(std::string body, int status = 200) {
  return {.status = status,
          .content_type = "application/json",
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"}}};
}

HttpResponse Error(const absl::Status& status) {
  int code = 500;
  if (absl::IsInvalidArgument(status)) code = 400;
  if (absl::IsNotFound(status)) code = 404;
  if (absl::IsUnavailable(status)) code = 503;
  return JsonResponse(StrCat("{\"error\":", Quoted(std::string(Message(status))), "}\n"), code);
}

HttpResponse Answer(const absl::StatusOr<HttpResponse>& answer) {
  return answer.ok() ? *answer : Error(answer.status());
}

// The parameters of a request. Read checks that each is known and given once; the getters check the
// types.
class Parameters {
 public:
  static absl::StatusOr<Parameters> Read(const HttpRequest& request,
                                         std::initializer_list<std::string_view> known) {
    for (const auto& [name, value] : request.parameters) {
      bool is_known = false;
      std::string names;
      for (const std::string_view candidate : known) {
        is_known |= candidate == name;
        names += StrCat(names.empty() ? "" : ", ", candidate);
      }
      if (!is_known) {
        return absl::InvalidArgumentError(
            StrCat("unknown parameter '", name, "'; known parameters: ", names));
      }
      if (request.parameters.count(name) > 1) {
        return absl::InvalidArgumentError(StrCat("parameter '", name, "' is given more than once"));
      }
    }
    return Parameters(&request);
  }

  std::string Text(const std::string& name) const {
    const auto found = request_->parameters.find(name);
    return found == request_->parameters.end() ? "" : found->second;
  }
  bool Has(const std::string& name) const { return request_->parameters.count(name) > 0; }
  absl::StatusOr<int64_t> Integer(const std::string& name, int64_t least, int64_t most,
                                  int64_t otherwise) const {
    if (!Has(name)) return otherwise;
    int64_t value = 0;
    if (absl::SimpleAtoi(Text(name), &value) && value >= least && value <= most) return value;
    return absl::InvalidArgumentError(
        StrCat(name, " must be an integer from ", least, most == kMaxInteger ? " up" : "",
               most == kMaxInteger ? "" : StrCat(" to ", most), ", is '", Text(name), "'"));
  }
  absl::StatusOr<bool> Flag(const std::string& name) const {
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t value, Integer(name, 0, 1, 0));
    return value == 1;
  }

 private:
  explicit Parameters(const HttpRequest* request) : request_(request) {}
  const HttpRequest* request_;
};

absl::StatusOr<ReportForm> FormOf(const Parameters& parameters) {
  PTQWATCH_ASSIGN_OR_RETURN(const bool layers, parameters.Flag("layers"));
  PTQWATCH_ASSIGN_OR_RETURN(const bool series, parameters.Flag("series"));
  if (layers && series) {
    return absl::InvalidArgumentError("layers='1' and series='1' exclude each other");
  }
  if (series) return ReportForm::kJsonSeries;
  return layers ? ReportForm::kJson : ReportForm::kJsonWithoutLayers;
}

absl::StatusOr<HttpResponse> ReportsPage(const ServedRuns& runs, const HttpRequest& request) {
  PTQWATCH_ASSIGN_OR_RETURN(
      const Parameters parameters,
      Parameters::Read(request, {"after", "limit", "layers", "series", "run"}));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t after, parameters.Integer("after", 0, kMaxInteger, 0));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t limit,
                            parameters.Integer("limit", 1, kMaxInteger, kMaxInteger));
  PTQWATCH_ASSIGN_OR_RETURN(const ReportForm form, FormOf(parameters));
  PTQWATCH_ASSIGN_OR_RETURN(const RunView view, runs.Find(parameters.Text("run")));
  const RunFeed::Page page = view.run->feed.List(after, limit, form);
  std::string reports;
  for (const SharedBytes& report : page.reports) {
    reports += StrCat(reports.empty() ? "" : ",\n", *report);
  }
  return JsonResponse(
      StrCat("{\"run\":", Quoted(view.status.name), ",\"run_id\":", Quoted(view.status.run.run_id),
             ",\"oldest_sequence\":", page.oldest, ",\"newest_sequence\":", page.newest,
             ",\"more\":", page.more ? "true" : "false", ",\"reports\":[", reports, "]}\n"));
}

// "12-5", as EventStream writes it.
absl::StatusOr<RunFeed::Position> ParseLastEventId(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('-', 1));
  RunFeed::Position position;
  if (absl::SimpleAtoi(parts.first, &position.sequence) &&
      absl::SimpleAtoi(parts.second, &position.event) && position.sequence >= 0 &&
      position.event >= 0) {
    return position;
  }
  return absl::InvalidArgumentError(
      StrCat("Last-Event-ID must be SEQUENCE-NUMBER, as the stream gave it, is '", text, "'"));
}

}  // namespace

std::string RunStatusJson(const RunView& view) {
  const RunFeed::Position newest = view.run->feed.newest();
  std::string verdict = "unknown";
  if (view.report != nullptr) verdict = std::string(ToString(view.report->verdict.state));
  RunStatus status = view.status;
  status.time_unix_seconds.reset();  // so that a status that does not change is sent once
  return StrCat("{\"newest_sequence\":", newest.sequence, ",\"newest_event\":", newest.event,
                ",\"verdict\":", Quoted(verdict), ",", StatusJson(status).substr(1));
}

HttpResponse HttpApi::Reports(const HttpRequest& request) const {
  return Answer(ReportsPage(*runs_, request));
}

HttpResponse HttpApi::Status(const HttpRequest& request) const {
  const auto parameters = Parameters::Read(request, {"run"});
  if (!parameters.ok()) return Error(parameters.status());
  std::vector<RunView> views = runs_->Open();
  if (parameters->Has("run")) {
    absl::StatusOr<RunView> view = runs_->Find(parameters->Text("run"));
    if (!view.ok()) return Error(view.status());
    views = {*std::move(view)};
  }
  std::string runs;
  for (const RunView& view : views) runs += StrCat(runs.empty() ? "" : ",", RunStatusJson(view));
  return JsonResponse(
      StrCat("{\"version\":", Quoted(PTQWATCH_VERSION_STRING), ",\"time_unix_seconds\":",
             StrFormat("%.3f", Clock::Real()->UnixSeconds()), ",\"runs\":[", runs, "]}\n"));
}

HttpResponse HttpApi::Events(const HttpRequest& request) { return Answer(Stream(request)); }

absl::StatusOr<HttpResponse> HttpApi::Stream(const HttpRequest& request) {
  PTQWATCH_ASSIGN_OR_RETURN(const Parameters parameters,
                            Parameters::Read(request, {"after", "after_event", "layers", "run"}));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t after, parameters.Integer("after", 0, kMaxInteger, -1));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t after_event,
                            parameters.Integer("after_event", 0, kMaxInteger, -1));
  PTQWATCH_ASSIGN_OR_RETURN(const bool layers, parameters.Flag("layers"));
  PTQWATCH_ASSIGN_OR_RETURN(RunView view, runs_->Find(parameters.Text("run")));
  RunFeed::Position position = view.run->feed.newest();
  if (after >= 0) position.sequence = after;
  if (after_event >= 0) position.event = after_event;
  // A client that reconnects already has more than its URL asks for.
  if (!request.last_event_id.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(position, ParseLastEventId(request.last_event_id));
  }
  if (static_cast<size_t>(open_.use_count()) > max_streams_) {
    return absl::UnavailableError("too many streams are open");
  }
  const auto stream = std::make_shared<EventStream>(
      std::shared_ptr<const RunFeed>(view.run, &view.run->feed), position,
      layers ? ReportForm::kJson : ReportForm::kJsonWithoutLayers,
      [this, run = std::move(view.status.name)] { return StatusOf(run); });
  // X-Accel-Buffering keeps nginx from buffering the stream.
  return HttpResponse{.content_type = "text/event-stream",
                      .body = EventStream::kOpening,
                      .headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}},
                      .stream = [stream, open = open_] { return stream->Next(); }};
}

std::string HttpApi::StatusOf(const std::string& run) {
  const auto now = Clock::Real()->Monotonic();
  auto& [time, status] = statuses_[run];
  if (!status.empty() && now - time < kStatusAge) return status;
  const absl::StatusOr<RunView> view = runs_->Find(run);
  time = now;
  return status = view.ok() ? RunStatusJson(*view) : "";
}

}  // namespace ptqwatch::internal
