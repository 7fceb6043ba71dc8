#include "quantize/kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <system_error>
#include <utility>

#include "base/guard.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// About 50 us of work: with less, another thread does not pay off.
constexpr double kMinFlopPerThread = 1 << 22;

}  // namespace

absl::Status CheckThreads(const ExecutionContext& context) {
  if (context.threads >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("context.threads is ", context.threads, "; it must be at least 1"));
}

struct ThreadTeam::Loop {
  Loop(int64_t pieces, Body work) : count(pieces), body(work) {}

  int64_t count;
  Body body;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mutex;
  int64_t failed_index ABSL_GUARDED_BY(mutex) = std::numeric_limits<int64_t>::max();
  absl::Status status ABSL_GUARDED_BY(mutex);
};

ThreadTeam::ThreadTeam(double flop, const ExecutionContext& context) : context_(context) {
  const double useful = std::min<double>(context.threads, 1 + flop / kMinFlopPerThread);
  const size_t helpers = static_cast<size_t>(std::max(useful, 1.0)) - 1;
  // Threads hold references to the contexts, so the vector must not grow afterwards.
  helpers_.resize(helpers);
  for (Helper& helper : helpers_) helper.context = context.ForHelper();
  size_t started = 0;
  try {
    for (; started < helpers; ++started) {
      Helper& helper = helpers_[started];
      helper.thread = std::thread(&ThreadTeam::Serve, this, static_cast<int>(started) + 1,
                                  std::ref(helper.context));
    }
  } catch (const std::system_error&) {
    // Works with fewer threads. ForEach waits only for those in helpers_.
    helpers_.resize(started);
  }
}

ThreadTeam::~ThreadTeam() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  begin_.SignalAll();
  for (Helper& helper : helpers_) helper.thread.join();
}

void ThreadTeam::Serve(int thread, const ExecutionContext& context) {
  int64_t seen = 0;
  MutexLock lock(mutex_);
  while (true) {
    while (!ending_ && generation_ == seen) begin_.Wait(mutex_);
    if (ending_) return;
    seen = generation_;
    Loop& loop = *loop_;
    lock.Unlock();
    Work(loop, thread, context);
    lock.Lock();
    if (--working_ == 0) end_.Signal();
  }
}

void ThreadTeam::Work(Loop& loop, int thread, const ExecutionContext& context) {
  while (!loop.failed.load(std::memory_order_relaxed)) {
    const int64_t index = loop.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= loop.count) return;
    absl::Status status = Guard([&] { return loop.body(thread, index, context); });
    if (status.ok()) continue;
    loop.failed.store(true, std::memory_order_relaxed);
    MutexLock lock(loop.mutex);
    if (index < loop.failed_index) {
      loop.failed_index = index;
      loop.status = std::move(status);
    }
  }
}

absl::Status ThreadTeam::ForEach(int64_t count, Body body) {
  Loop loop(count, body);
  const bool together = !helpers_.empty() && count > 1;
  if (together) {
    {
      MutexLock lock(mutex_);
      loop_ = &loop;
      ++generation_;
      working_ = static_cast<int>(helpers_.size());
    }
    begin_.SignalAll();
  }
  Work(loop, 0, context_);
  if (together) {
    MutexLock lock(mutex_);
    while (working_ > 0) end_.Wait(mutex_);
  }
  MutexLock lock(loop.mutex);
  return std::move(loop.status);
}

}  // namespace ptqwatch::internal
