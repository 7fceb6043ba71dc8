#include "http/event_stream.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::seconds;

constexpr auto kStatusInterval = seconds(1);
constexpr auto kSilence = seconds(15);  // then sends a comment to keep the connection alive
constexpr size_t kPartBytes = size_t{64} << 10;

// `json` contains no newline, which would end the field.
std::string SseMessage(std::string_view event, std::string_view json) {
  return StrCat("event: ", event, "\ndata: ", json, "\n\n");
}

// `before` and `after` are the reader's positions around the item.
std::string SseMessage(const RunFeed::Item& item, const RunFeed::Position& before,
                       const RunFeed::Position& after) {
  std::string text;
  const int64_t missed = after.sequence - before.sequence - 1;
  if (before.sequence > 0 && missed > 0) {
    text = SseMessage("missed", StrCat("{\"missed\":", missed, "}"));
  }
  text += StrCat("id: ", after.sequence, "-", after.event, "\n");
  return text + (item.event == nullptr ? SseMessage("report", *item.report)
                                       : SseMessage("event", EventToJson(*item.event)));
}

}  // namespace

EventStream::EventStream(std::shared_ptr<const RunFeed> feed, RunFeed::Position position,
                         ReportForm form, std::function<std::string()> status, Clock* clock)
    : feed_(std::move(feed)),
      position_(position),
      wants_{.form = form},
      status_(std::move(status)),
      clock_(clock),
      next_status_(clock->Monotonic()),
      last_sent_(next_status_) {}

std::optional<std::string> EventStream::Next() {
  // Read before the feed, so that an item published in between is not missed.
  const bool closed = feed_->closed();
  std::string part = NewStatus();
  while (part.size() < kPartBytes) {
    const RunFeed::Position before = position_;
    const std::optional<RunFeed::Item> item = feed_->Next(position_, wants_);
    if (!item) break;
    part += SseMessage(*item, before, position_);
  }
  const auto now = clock_->Monotonic();
  if (part.empty()) {
    if (closed) return std::nullopt;
    if (now - last_sent_ < kSilence) return part;
    part = ":\n\n";
  }
  last_sent_ = now;
  return part;
}

// The server time in the message, from which the page computes ages, does not count as a change of
// status.
std::string EventStream::NewStatus() {
  const auto now = clock_->Monotonic();
  if (now < next_status_) return "";
  next_status_ = now + kStatusInterval;
  std::string status = status_();
  if (status.empty() || status == sent_status_) return "";
  sent_status_ = std::move(status);
  return SseMessage(
      "status", StrCat(sent_status_.substr(0, sent_status_.rfind('}')),
                       ",\"time_unix_seconds\":", StrFormat("%.3f", clock_->UnixSeconds()), "}"));
}

}  // namespace ptqwatch::internal
