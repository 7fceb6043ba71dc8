#ifndef PTQWATCH_BASE_REPORT_QUEUE_H_
#define PTQWATCH_BASE_REPORT_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace ptqwatch::internal {

enum class QueueDrop {
  kFull,        ///< the queue was full
  kNotHandled,  ///< still queued when Stop ran out of time
};

template <typename Item>
struct ReportQueueOptions {
  std::string thread_name = {};
  size_t capacity = 256;
  /// Called on the queue's thread. If it returns false, the item stays in front and is tried again
  /// after the next Push and once more by Stop. Must not throw. Like `rest`, it must own all that
  /// it uses, because Stop may leave the thread behind.
  std::function<bool(const Item&)> handle = {};
  /// Called on the queue's thread before it sleeps. May be empty. Must not throw.
  std::function<void()> rest = {};
  /// Called in Push or Stop, on the caller's thread, for each item that will not be handled. A lock
  /// is held: must return at once.
  std::function<void(QueueDrop)> dropped = {};
};

/// A bounded queue whose own thread handles the items in order, so that an exporter can take a
/// report without making the monitor wait. A full queue drops its oldest item but the one that is
/// being handled, because the newest matter most. Thread-safe. Copying an Item must not throw.
template <typename Item>
class ReportQueue {
 public:
  using Options = ReportQueueOptions<Item>;

  /// Starts the thread; errors are those of StartThread. `handle` and `rest` are destroyed when it
  /// ends.
  static absl::StatusOr<std::unique_ptr<ReportQueue>> Start(Options options);
  ~ReportQueue() { Stop(std::chrono::seconds(2)); }
  ReportQueue(const ReportQueue&) = delete;
  ReportQueue& operator=(const ReportQueue&) = delete;

  /// Returns at once. Items pushed after Stop are ignored.
  void Push(Item item);

  /// Handles queued items until the deadline, drops the rest and ends the thread. False if the
  /// thread is left behind, because it was still handling an item at the deadline. Idempotent.
  bool Stop(std::chrono::milliseconds deadline);

  /// Items dropped so far.
  int64_t dropped() const {
    MutexLock lock(shared_->mutex);
    return shared_->dropped;
  }

 private:
  // Shared with the thread, which may be left behind.
  struct Shared {
    explicit Shared(Options o) : options(std::move(o)) {}
    Options options;
    Mutex mutex;
    CondVar changed;
    std::deque<Item> items ABSL_GUARDED_BY(mutex);  // oldest first; an item leaves once handled
    bool handling ABSL_GUARDED_BY(mutex) = false;   // the front is being handled
    bool pushed ABSL_GUARDED_BY(mutex) = false;     // since the thread last checked
    bool stopping ABSL_GUARDED_BY(mutex) = false;
    bool ended ABSL_GUARDED_BY(mutex) = false;
    int64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  };

  ReportQueue(std::shared_ptr<Shared> shared, Thread thread)
      : shared_(std::move(shared)), thread_(std::move(thread)) {}

  static void Run(Shared& shared);
  static void HandleAll(Shared& shared);
  static void Drop(Shared& shared, QueueDrop reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex);

  const std::shared_ptr<Shared> shared_;
  Thread thread_;
  bool left_behind_ = false;  // used only by Stop
};

template <typename Item>
absl::StatusOr<std::unique_ptr<ReportQueue<Item>>> ReportQueue<Item>::Start(Options options) {
  auto shared = std::make_shared<Shared>(std::move(options));
  absl::StatusOr<Thread> thread =
      StartThread(shared->options.thread_name, [shared] { Run(*shared); });
  if (!thread.ok()) return thread.status();
  return std::unique_ptr<ReportQueue>(new ReportQueue(std::move(shared), *std::move(thread)));
}

template <typename Item>
void ReportQueue<Item>::Push(Item item) {
  Shared& shared = *shared_;
  MutexLock lock(shared.mutex);
  if (shared.stopping) return;
  if (shared.items.size() >= shared.options.capacity) {
    Drop(shared, QueueDrop::kFull);
    const size_t oldest = shared.handling ? 1 : 0;
    if (oldest == shared.items.size()) return;
    shared.items.erase(shared.items.begin() + static_cast<std::ptrdiff_t>(oldest));
  }
  shared.items.push_back(std::move(item));
  shared.pushed = true;
  shared.changed.SignalAll();
}

template <typename Item>
bool ReportQueue<Item>::Stop(std::chrono::milliseconds deadline) {
  if (!thread_.joinable()) return !left_behind_;
  const auto until = std::chrono::steady_clock::now() + deadline;
  Shared& shared = *shared_;
  {
    MutexLock lock(shared.mutex);
    shared.stopping = true;
    shared.changed.SignalAll();
    while (!shared.ended && shared.changed.WaitUntil(shared.mutex, until)) {
    }
    left_behind_ = !shared.ended;
    for (; !shared.items.empty(); shared.items.pop_back()) Drop(shared, QueueDrop::kNotHandled);
  }
  left_behind_ ? thread_.Detach() : thread_.Join();
  return !left_behind_;
}

template <typename Item>
void ReportQueue<Item>::Run(Shared& shared) {
  bool last = false;
  while (!last) {
    {
      MutexLock lock(shared.mutex);
      while (!shared.pushed && !shared.stopping) shared.changed.Wait(shared.mutex);
      shared.pushed = false;
      last = shared.stopping;
    }
    HandleAll(shared);
    if (shared.options.rest) shared.options.rest();
  }
  // Objects owned by the callbacks, such as a locked file, are released before Stop returns.
  shared.options.handle = nullptr;
  shared.options.rest = nullptr;
  MutexLock lock(shared.mutex);
  shared.ended = true;
  shared.changed.SignalAll();
}

// Handles items until the queue is empty or an item could not be handled.
template <typename Item>
void ReportQueue<Item>::HandleAll(Shared& shared) {
  MutexLock lock(shared.mutex);
  while (!shared.items.empty()) {
    const Item item = shared.items.front();
    shared.handling = true;
    lock.Unlock();
    const bool done = shared.options.handle(item);
    lock.Lock();
    shared.handling = false;
    // The queue is empty if a Stop that ran out of time has dropped this item with the rest.
    if (!done || shared.items.empty()) return;
    shared.items.pop_front();
  }
}

template <typename Item>
void ReportQueue<Item>::Drop(Shared& shared, QueueDrop reason) {
  ++shared.dropped;
  if (shared.options.dropped) shared.options.dropped(reason);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_REPORT_QUEUE_H_
