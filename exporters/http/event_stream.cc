#include "http/event_stream.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::seconds;

constexpr auto kStatusInterval = seconds(1);
constexpr auto kSilence = seconds(15);  // then a comment, so that proxies and clients see life
constexpr size_t kPartBytes = size_t{64} << 10;

// JSON has no newline, which would end the field.
std::string SseMessage(std::string_view event, std::string_view json) {
  return StrCat("event: ", event, "\ndata: ", json, "\n\n");
}

std::string SseMessage(const JsonFeed::Message& message, const JsonFeed::Position& position) {
  std::string text;
  if (message.missed > 0) {
    text = SseMessage("missed", StrCat("{\"missed\":", message.missed, "}"));
  }
  return text + StrCat("id: ", position.sequence, "-", position.event, "\n") +
         SseMessage(message.is_event ? "event" : "report", *message.json);
}

}  // namespace

EventStream::EventStream(std::shared_ptr<const JsonFeed> feed, JsonFeed::Position position,
                         ReportForm form, std::function<std::string()> status, Clock* clock)
    : feed_(std::move(feed)),
      position_(position),
      form_(form),
      status_(std::move(status)),
      clock_(clock),
      next_status_(clock->Monotonic()),
      last_sent_(next_status_) {}

std::optional<std::string> EventStream::Next() {
  // Asked before the feed is read to its end.
  const bool closed = feed_->closed();
  std::string part = NewStatus();
  while (part.size() < kPartBytes) {
    const std::optional<JsonFeed::Message> message = feed_->Next(position_, form_);
    if (!message) break;
    part += SseMessage(*message, position_);
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

// The server's time, by which the page tells ages, makes no status another one.
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
