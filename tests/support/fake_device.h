#ifndef PTQWATCH_TESTS_SUPPORT_FAKE_DEVICE_H_
#define PTQWATCH_TESTS_SUPPORT_FAKE_DEVICE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "snapshot/device_runtime.h"

namespace ptqwatch::testing {

/// A device whose streams run only when forced to, as late as events allow: the worst order that a
/// real device could choose. Tensors are CPU tensors. Thread-safe.
class FakeDevice final : public internal::DeviceRuntime {
 public:
  Stream MakeStream() override {
    const Lock lock(mutex_);
    return Added(streams_, std::make_unique<Queue>());
  }
  Event MakeEvent() override {
    const Lock lock(mutex_);
    return Added(events_, std::make_unique<Mark>());
  }
  Event MakeTimedEvent() override { return MakeEvent(); }
  Stream Current() override {
    const Lock lock(mutex_);
    const auto found = current_.find(std::this_thread::get_id());
    return found == current_.end() ? default_stream_ : found->second;
  }
  void Record(Event event, Stream stream) override {
    const Lock lock(mutex_);
    Mark* mark = static_cast<Mark*>(event);
    const int number = ++mark->recorded;
    mark->stream = stream;
    Of(stream).push_back({.run = [this, mark, number] {
      mark->reached = number;
      mark->at = now_;
    }});
  }
  void Wait(Stream stream, Event event) override {
    const Lock lock(mutex_);
    const Mark* mark = static_cast<Mark*>(event);
    Of(stream).push_back({.mark = mark, .number = mark->recorded, .source = mark->stream});
    const auto current = current_.find(std::this_thread::get_id());
    if (waits_block_ && current != current_.end() && current->second == stream) {
      Synchronize(stream);
    }
  }
  void Copy(Stream stream, const std::vector<at::Tensor>& destinations,
            const std::vector<at::Tensor>& sources) override {
    Queued(stream, [destinations, sources] {
      for (size_t i = 0; i < sources.size(); ++i) {
        at::Tensor to = destinations[i];
        to.copy_(sources[i].detach());
      }
    });
  }
  void Synchronize(Stream stream) override {
    Run(stream, [] { return false; });
  }
  void SynchronizeEvent(Event event) noexcept override {
    const Lock lock(mutex_);
    const Mark* mark = static_cast<Mark*>(event);
    if (mark->stream == nullptr) return;
    Run(mark->stream, [mark] { return mark->reached >= mark->recorded; });
  }
  std::chrono::nanoseconds Between(Event begin, Event end) override {
    const Lock lock(mutex_);
    return static_cast<Mark*>(end)->at - static_cast<Mark*>(begin)->at;
  }
  void EnterThread(Stream stream) override {
    const Lock lock(mutex_);
    if (threads_left_-- == 0) throw std::runtime_error("CUDA error: out of streams");
    SetCurrent(stream);
  }
  int64_t FreeBytes() override {
    const Lock lock(mutex_);
    return free_bytes_;
  }
  absl::Status Fault() noexcept override {
    const Lock lock(mutex_);
    return fault_;
  }

  /// Queues work that takes `duration`.
  void Queued(Stream stream, std::function<void()> work,
              std::chrono::nanoseconds duration = std::chrono::nanoseconds(0)) {
    const Lock lock(mutex_);
    Of(stream).push_back({.run = [this, work = std::move(work), duration] {
      now_ += duration;
      work();
    }});
  }
  /// Runs all work of the stream, and of other streams only the work that it waits for.
  void Finish(Stream stream) { Synchronize(stream); }
  /// While the result is alive, other threads block at their next call.
  std::unique_lock<std::recursive_mutex> Hold() {
    return std::unique_lock<std::recursive_mutex>(mutex_);
  }
  /// Advances time without work.
  void Idle(std::chrono::nanoseconds duration) {
    const Lock lock(mutex_);
    now_ += duration;
  }
  /// Sets the calling thread's current stream.
  void SetCurrent(Stream stream) {
    const Lock lock(mutex_);
    current_[std::this_thread::get_id()] = stream;
  }
  size_t made() const {
    const Lock lock(mutex_);
    return streams_.size() + events_.size();
  }

  /// Makes work on a stream that a thread has entered run at once, after the work that it must wait
  /// for. For code that works on CPU tensors without queueing.
  void SetWaitsBlock() { waits_block_ = true; }
  /// Makes EnterThread throw after this many more calls.
  void SetRefusesThreads(int after) { threads_left_ = after; }
  void SetFreeBytes(int64_t bytes) {
    const Lock lock(mutex_);
    free_bytes_ = bytes;
  }
  void SetFault(absl::Status fault) {
    const Lock lock(mutex_);
    fault_ = std::move(fault);
  }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;
  struct Mark {
    int recorded = 0;
    int reached = 0;
    Stream stream = nullptr;  // of the last Record
    std::chrono::nanoseconds at{0};
  };
  struct Op {
    std::function<void()> run = [] {};
    // Waits for the Record with this number of the mark; it is queued in `source`.
    const Mark* mark = nullptr;
    int number = 0;
    Stream source = nullptr;
  };
  using Queue = std::deque<Op>;

  template <typename T>
  static T* Added(std::vector<std::unique_ptr<T>>& all, std::unique_ptr<T> one) {
    all.push_back(std::move(one));
    return all.back().get();
  }
  static Queue& Of(Stream stream) { return *static_cast<Queue*>(stream); }
  // Runs one operation and everything that it waits for. Returns false if the queue is empty.
  bool Step(Queue& queue) {
    if (queue.empty()) return false;
    const Op op = std::move(queue.front());
    queue.pop_front();
    while (op.mark != nullptr && op.mark->reached < op.number && Step(Of(op.source))) {
    }
    op.run();
    return true;
  }
  void Run(Stream stream, const std::function<bool()>& until) {
    const Lock lock(mutex_);
    while (!until() && Step(Of(stream))) {
    }
  }

  mutable std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Queue>> streams_;
  std::vector<std::unique_ptr<Mark>> events_;
  std::map<std::thread::id, Stream> current_;
  Stream default_stream_ = MakeStream();
  std::chrono::nanoseconds now_{0};
  bool waits_block_ = false;
  int threads_left_ = -1;
  int64_t free_bytes_ = int64_t{1} << 40;
  absl::Status fault_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_FAKE_DEVICE_H_
