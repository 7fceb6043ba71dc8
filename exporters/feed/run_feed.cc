#include "feed/run_feed.h"

#include <utility>

namespace ptqwatch::internal {
namespace {

// By default, gRPC clients accept messages of up to 4 MiB.
constexpr size_t kMaxPageBytes = size_t{3} << 20;

}  // namespace

RunFeed::RunFeed(const ReportHistory::Limits& limits, ReportForms forms,
                 std::function<void()> changed)
    : forms_(std::move(forms)), changed_(std::move(changed)), reports_(limits) {}

bool RunFeed::Publish(const AnalyzedReport& report) {
  WireReport wire{.sequence = report.report.sequence, .forms = {}};
  for (const auto& form : forms_) wire.forms.push_back(Share(form ? form(report) : std::string()));
  {
    MutexLock lock(mutex_);
    if (wire.sequence <= reports_.newest()) return false;
    reports_.Append(std::move(wire));
    stopped_ = false;
  }
  changed_();
  return true;
}

void RunFeed::Publish(const Event& event) {
  {
    MutexLock lock(mutex_);
    events_.push_back({reports_.newest(), std::make_shared<const Event>(event)});
    if (events_.size() > kMaxEvents) events_.pop_front();
    ++newest_event_;
    stopped_ = event.kind == Event::Kind::kStopped;
  }
  changed_();
}

void RunFeed::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_();
}

bool RunFeed::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

bool RunFeed::over() const {
  MutexLock lock(mutex_);
  return closed_ || stopped_;
}

RunFeed::Position RunFeed::newest() const {
  MutexLock lock(mutex_);
  return {.sequence = reports_.newest(), .event = newest_event_};
}

const RunFeed::PublishedEvent* RunFeed::NextEvent(Position& position, const Wants& wants) const {
  if (!wants.events || position.event >= newest_event_) return nullptr;
  const int64_t dropped = newest_event_ - static_cast<int64_t>(events_.size());
  if (position.event < dropped) {
    position.lost_events += dropped - position.event;
    position.event = dropped;
  }
  for (; position.event < newest_event_; ++position.event) {
    const PublishedEvent& next = events_[static_cast<size_t>(position.event - dropped)];
    if (!wants.passes || wants.passes(*next.event)) return &next;
  }
  return nullptr;
}

std::optional<RunFeed::Item> RunFeed::Next(Position& position, const Wants& wants) const {
  MutexLock lock(mutex_);
  const PublishedEvent* const event = NextEvent(position, wants);
  while (true) {
    const int64_t next = wants.reports ? reports_.After(position.sequence) : 0;
    if (event != nullptr && (next == 0 || event->after_sequence < next)) {
      ++position.event;
      return Item{.report = nullptr, .event = event->event};
    }
    if (next == 0) return std::nullopt;
    position.sequence = next;
    if (SharedBytes report = reports_.Bytes(next, static_cast<size_t>(wants.form))) {
      return Item{.report = std::move(report), .event = nullptr};
    }
  }
}

RunFeed::Page RunFeed::List(int64_t after_sequence, int64_t limit, ReportForm form) const {
  MutexLock lock(mutex_);
  Page page{.reports = {}, .oldest = reports_.oldest(), .newest = reports_.newest()};
  size_t bytes = 0;
  int64_t next = reports_.After(after_sequence);
  for (; next != 0; next = reports_.After(next)) {
    SharedBytes report = reports_.Bytes(next, static_cast<size_t>(form));
    if (report == nullptr) continue;
    bytes += report->size();
    const auto count = static_cast<int64_t>(page.reports.size());
    if (count > 0 && (count == limit || bytes > kMaxPageBytes)) break;
    page.reports.push_back(std::move(report));
  }
  page.more = next != 0;
  return page;
}

}  // namespace ptqwatch::internal
