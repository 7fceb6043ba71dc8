#include "event_streams.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto kSilence = seconds(15);   // then a comment, so that proxies and clients see life
constexpr auto kPatience = seconds(20);  // with a client that takes nothing

// The client tries again after two seconds. X-Accel-Buffering tells nginx to pass all on at once.
constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\n"
    "Content-Type: text/event-stream\r\n"
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Accel-Buffering: no\r\n"
    "X-Content-Type-Options: nosniff\r\n\r\n"
    "retry: 2000\n\n";

// JSON has no newline, which would end the field.
std::string SseMessage(std::string_view event, const std::string& json) {
  return StrCat("event: ", event, "\ndata: ", json, "\n\n");
}

// With the server's time, by which the page tells ages. It makes no status another one.
std::string StatusMessage(const std::string& status) {
  return SseMessage("status", StrCat(status.substr(0, status.rfind('}')), ",\"time_unix_seconds\":",
                                     StrFormat("%.3f", Clock::Real()->UnixSeconds()), "}"));
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

struct EventStreams::Stream {
  Stream(std::unique_ptr<Channel> connected, Subscription subscribed, std::atomic<size_t>* counter)
      : channel(std::move(connected)), subscription(std::move(subscribed)), open(counter) {}
  ~Stream() {
    channel.reset();
    open->fetch_sub(1);
  }

  std::unique_ptr<Channel> channel;
  Subscription subscription;
  std::atomic<size_t>* const open;
  std::string pending = std::string(kHead);
  size_t sent = 0;  // of `pending`
  std::string status;
  Time last_sent = steady_clock::now();
};

EventStreams::EventStreams(Options options, int wake) : options_(std::move(options)), wake_(wake) {}

EventStreams::~EventStreams() {
  Stop();
  close(wake_);
}

absl::StatusOr<std::unique_ptr<EventStreams>> EventStreams::Start(Options options) {
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return absl::ResourceExhaustedError("no descriptor for event streams");
  std::unique_ptr<EventStreams> streams(new EventStreams(std::move(options), wake));
  PTQWATCH_ASSIGN_OR_RETURN(streams->thread_,
                            StartThread("ptqw-http-live", [made = streams.get()] { made->Run(); }));
  return streams;
}

bool EventStreams::HasRoom() const { return open_.load() < options_.max_streams; }

void EventStreams::Add(std::unique_ptr<Channel> channel, Subscription subscription) {
  const bool has_room = open_.fetch_add(1) < options_.max_streams;
  auto stream = std::make_unique<Stream>(std::move(channel), std::move(subscription), &open_);
  if (!has_room) return;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    new_.push_back(std::move(stream));
  }
  Wake();
}

void EventStreams::Wake() const noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void EventStreams::Stop() {
  if (!process_.here() || !thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.Join();
}

bool EventStreams::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void EventStreams::Run() {
  Time next_status = steady_clock::now();
  while (!stopping()) {
    TakeNew();
    const Time now = steady_clock::now();
    if (now >= next_status) {
      next_status = now + options_.status_interval;
      SendStatuses();
    }
    streams_.remove_if([&](const auto& stream) { return !Advance(*stream, now); });
    WaitForSomething(next_status);
  }
  streams_.clear();
  MutexLock lock(mutex_);
  new_.clear();
}

void EventStreams::TakeNew() {
  std::vector<std::unique_ptr<Stream>> taken;
  {
    MutexLock lock(mutex_);
    taken.swap(new_);
  }
  for (auto& stream : taken) {
    stream->status = options_.status(stream->subscription.run);
    if (!stream->status.empty()) stream->pending += StatusMessage(stream->status);
    streams_.push_back(std::move(stream));
  }
}

// A status is told to those who have taken everything before it: it is the newest that counts.
void EventStreams::SendStatuses() {
  std::map<std::string, std::string> statuses;
  for (const auto& stream : streams_) {
    if (!stream->pending.empty()) continue;
    const std::string& run = stream->subscription.run;
    auto found = statuses.find(run);
    if (found == statuses.end()) found = statuses.emplace(run, options_.status(run)).first;
    if (found->second.empty() || found->second == stream->status) continue;
    stream->status = found->second;
    stream->pending = StatusMessage(stream->status);
  }
}

bool EventStreams::Advance(Stream& stream, Time now) {
  // Clients have nothing to say; a connection that they end is readable, too.
  // What TLS would have to answer to one that does not read is no reason to wait either.
  char ignored[512];
  const Channel::Moved got = stream.channel->Receive(ignored, sizeof(ignored));
  if (got.bytes == 0 && got.wait != POLLIN) return false;
  Subscription& subscription = stream.subscription;
  while (true) {
    if (!Flush(stream, now)) return false;
    if (!stream.pending.empty()) return now - stream.last_sent < kPatience;
    // Asked before the feed is read to its end.
    const bool closed = subscription.feed->closed();
    const auto message = subscription.feed->Next(subscription.position, subscription.form);
    if (message) {
      stream.pending = SseMessage(*message, subscription.position);
    } else if (closed) {
      return false;
    } else if (now - stream.last_sent >= kSilence) {
      stream.pending = ":\n\n";
    } else {
      return true;
    }
  }
}

bool EventStreams::Flush(Stream& stream, Time now) {
  while (stream.sent < stream.pending.size()) {
    const Channel::Moved sent = stream.channel->Send(stream.pending.data() + stream.sent,
                                                     stream.pending.size() - stream.sent);
    if (sent.bytes == 0) return sent.wait != 0;
    stream.sent += sent.bytes;
    stream.last_sent = now;
  }
  stream.pending.clear();
  stream.sent = 0;
  return true;
}

void EventStreams::WaitForSomething(Time until) {
  std::vector<pollfd> waiting = {{wake_, POLLIN, 0}};
  for (const auto& stream : streams_) {
    const bool blocked = !stream->pending.empty();
    waiting.push_back(
        {stream->channel->socket(), static_cast<short>(blocked ? POLLIN | POLLOUT : POLLIN), 0});
  }
  // Without streams there is nobody to tell a status.
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
  const int timeout = streams_.empty() ? -1 : static_cast<int>(std::max<int64_t>(left, 0));
  poll(waiting.data(), waiting.size(), timeout);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof(count));
}

}  // namespace ptqwatch::internal
