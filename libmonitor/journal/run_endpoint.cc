#include "journal/run_endpoint.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/guard.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"
#include "base/unix_socket.h"
#include "journal/control_message.h"
#include "journal/run_control.h"
#include "journal/status_file.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// For receiving a client's request, and again for sending the answer.
constexpr milliseconds kClientTimeout{500};

// The work of the thread. Owned by exporter and thread, because a thread that hangs on a disk is
// left behind.
class Loop {
 public:
  Loop(std::shared_ptr<RunLock> lock, milliseconds interval, pid_t process, StatusSource* source,
       Control* control)
      : interval_(interval),
        process_(process),
        run_dir_(source->run().run_dir),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        lock_(std::move(lock)),
        source_(source),
        control_(control) {
    absl::StatusOr<UnixListener> listener = UnixListener::Open(run_dir_, kControlSocketName);
    if (listener.ok()) {
      listener_.emplace(*std::move(listener));
    } else {
      Log(Severity::kWarning, StrCat("this run takes no commands: ", listener.status()));
    }
  }
  ~Loop() {
    if (wake_ >= 0) close(wake_);
  }

  // False if the system has no free descriptor.
  bool good() const { return wake_ >= 0; }

  void Run() {
    while (true) {
      WriteStatus();
      const auto next = steady_clock::now() + interval_;
      while (steady_clock::now() < next && !stopping()) Wait(next);
      if (stopping()) break;
    }
    WriteStatus();
    listener_.reset();
    lock_.reset();
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.SignalAll();
  }

  // False if the thread has not ended in time. `source` and `control` are not used afterwards.
  bool Stop(steady_clock::time_point until) {
    MutexLock lock(mutex_);
    stopping_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
    while (!ended_ && changed_.WaitUntil(mutex_, until)) {
    }
    source_ = nullptr;
    control_ = nullptr;
    return ended_;
  }

 private:
  bool stopping() {
    MutexLock lock(mutex_);
    return stopping_;
  }

  void WriteStatus() {
    const absl::Status status = Guard([&] {
      RunStatus now;
      now.process_id = process_;
      now.host = HostName();
      {
        MutexLock lock(mutex_);
        if (source_ == nullptr) return absl::OkStatus();
        now.run = source_->run();
        now.monitor = source_->status();
      }
      now.time_unix_seconds = Clock::Real()->UnixSeconds();
      return WriteStatusFile(run_dir_, now);
    });
    if (!status.ok()) failed_(Severity::kWarning, Message(status));
  }

  // Waits until `next`, a client or Stop.
  void Wait(steady_clock::time_point next) {
    pollfd waits[] = {
        {.fd = wake_, .events = POLLIN, .revents = 0},
        {.fd = listener_ ? listener_->descriptor() : -1, .events = POLLIN, .revents = 0}};
    const auto left = std::chrono::ceil<milliseconds>(next - steady_clock::now());
    const int ready = poll(waits, 2, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready <= 0 || (waits[1].revents & POLLIN) == 0) return;
    const absl::Status served = Guard([&] { return ServeOne(); });
    if (absl::IsUnavailable(served)) {
      // No descriptor is free: the client stays in the backlog, and polling would burn a core.
      waits[0].revents = 0;
      poll(waits, 1, static_cast<int>(interval_.count()));
    }
  }

  absl::Status ServeOne() {
    PTQWATCH_ASSIGN_OR_RETURN(const UnixConnection client, listener_->Accept());
    if (!client.IsOfThisUser()) return absl::OkStatus();
    const absl::StatusOr<std::string> line =
        client.ReceiveLine(kMaxControlBytes, kClientTimeout, wake_);
    // Ignores commands of clients that hung up.
    if (!line.ok() || !client.IsOpen()) return absl::OkStatus();
    client.SendLine(AnswerToJson(Answer(*line)), kClientTimeout, wake_).IgnoreError();
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Answer(std::string_view line) {
    PTQWATCH_ASSIGN_OR_RETURN(const Command command, CommandFromJson(line));
    MutexLock lock(mutex_);
    if (control_ == nullptr || stopping_) {
      return absl::FailedPreconditionError("the monitor has stopped");
    }
    return control_->Do(command);
  }

  const milliseconds interval_;
  const pid_t process_;
  const std::string run_dir_;
  const int wake_;
  std::shared_ptr<RunLock> lock_;         // used by the thread
  std::optional<UnixListener> listener_;  // used by the thread
  RateLimitedLog failed_;

  Mutex mutex_;
  CondVar changed_;
  StatusSource* source_ ABSL_GUARDED_BY(mutex_);
  Control* control_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class RunEndpoint final : public Exporter {
 public:
  RunEndpoint(std::shared_ptr<RunLock> lock, milliseconds interval, pid_t process)
      : lock_(std::move(lock)), interval_(interval), process_(process) {}
  ~RunEndpoint() override { Stop(std::chrono::seconds(2)); }

  std::string_view name() const override { return "run_dir"; }

  absl::Status Start(StatusSource* source, Control* control) override {
    if (source->run().run_dir.empty()) {
      return absl::FailedPreconditionError("a status file needs MonitorOptions::run_dir");
    }
    if (loop_ != nullptr)
      return absl::FailedPreconditionError("the status file was started before");
    auto loop = std::make_shared<Loop>(std::move(lock_), interval_, process_, source, control);
    if (!loop->good()) return absl::ResourceExhaustedError("no descriptor is left");
    PTQWATCH_ASSIGN_OR_RETURN(thread_, StartThread("ptqw-run-dir", [loop] { loop->Run(); }));
    loop_ = std::move(loop);
    return absl::OkStatus();
  }

  void OnReport(std::shared_ptr<const AnalyzedReport>) override {}

  void Stop(milliseconds deadline) override {
    if (loop_ == nullptr || std::exchange(stopped_, true)) return;
    if (loop_->Stop(steady_clock::now() + deadline)) {
      thread_.Join();
    } else {
      Log(Severity::kError,
          "the thread of run_dir did not end in time (a client or the disk hangs); it is left "
          "behind");
      thread_.Detach();
    }
  }

 private:
  std::shared_ptr<RunLock> lock_;
  const milliseconds interval_;
  const pid_t process_;
  std::shared_ptr<Loop> loop_;
  Thread thread_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Exporter> MakeRunEndpoint(std::shared_ptr<RunLock> lock, milliseconds interval,
                                          pid_t process) {
  return std::make_unique<RunEndpoint>(std::move(lock), interval, process);
}

}  // namespace ptqwatch::internal
