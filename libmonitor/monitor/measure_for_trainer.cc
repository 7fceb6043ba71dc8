#include "ptqwatch/measure_for_trainer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "monitor/linked_monitor.h"
#include "monitor/remote_monitor.h"
#include "monitor/trainer_options.h"

namespace ptqwatch {
namespace {

using internal::Page;
using internal::StrCat;
using internal::WorkerLink;

// How often requests are looked for if no signal of the trainer arrives.
constexpr std::chrono::milliseconds kLook{100};

// The process that this one measures for, by the environment. Read once, because this process's
// children are no workers.
struct Starter {
  pid_t trainer = 0;
  std::string replaces = {};
};
const Starter& StartedBy() {
  static const Starter* const starter = [] {
    const auto value = [](const char* name) {
      const char* text = std::getenv(name);
      return std::string(text == nullptr ? "" : text);
    };
    return new Starter{std::atoi(value(internal::kTrainerVariable).c_str()),
                       value(internal::kReplacesVariable)};
  }();
  return *starter;
}

// First in line when memory runs out. Signals of a terminal or a batch system are the trainer's.
void StepBack() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, "1000", 4);
  close(file);
}

absl::StatusOr<std::unique_ptr<WorkerLink>> OpenLink() {
  if (!IsMeasuringProcess()) {
    return absl::FailedPreconditionError(
        "MeasureForTrainer: no monitor has started this process (MonitorOptions.process)");
  }
  const bool has_pidfd = fcntl(internal::kTrainerPidDescriptor, F_GETFD) >= 0;
  for (const int file :
       {internal::kMemoryDescriptor, internal::kWakeDescriptor, internal::kTrainerPidDescriptor}) {
    fcntl(file, F_SETFD, FD_CLOEXEC);
  }
  return WorkerLink::Open({.memory = internal::kMemoryDescriptor,
                           .wake = internal::kWakeDescriptor,
                           .trainer = has_pidfd ? internal::kTrainerPidDescriptor : -1,
                           .process = StartedBy().trainer,
                           .replaces = StartedBy().replaces});
}

absl::StatusOr<std::unique_ptr<Monitor>> CreateMonitor(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>> exporters, WorkerLink& link) {
  const internal::Manifest& manifest = link.manifest();
  options.on_failure = OnFailure::kError;
  options.process.reset();
  options.serve.reset();
  options.run_dir = manifest.run_dir;
  options.rank = manifest.rank;
  options.ranks = manifest.ranks;
  if (manifest.shard) options.ranks_from_environment = false;  // the place is the host's
  if (options.training_threads == 0) {
    options.training_threads = static_cast<int>(manifest.training_threads);
  }
  return internal::LinkedMonitor::Create(std::move(subject), std::move(options),
                                         std::move(exporters), &link);
}

// Carries out the trainer's requests, until it asks to stop.
class Requests {
 public:
  Requests(Monitor* monitor, WorkerLink* link)
      : monitor_(*monitor), link_(*link), page_(*link->page()), finishing_(page_.requests.finish) {}

  void Serve() {
    while (page_.requests.stop_ms < 0) {
      link_.WaitForSignal(kLook);
      Idle();
      Finish();
      if (finishing_ != 0 && page_.requests.cancel == finishing_) cancel_.Cancel();
    }
    cancel_.Cancel();
    link_.Stop();
    monitor_.Stop(std::chrono::milliseconds(page_.requests.stop_ms)).IgnoreError();
  }

 private:
  void Idle() {
    const bool idle = page_.requests.idle > 0;
    if (idle == idle_.has_value()) return;
    if (idle) {
      idle_.emplace(monitor_.Idle());
    } else {
      idle_.reset();
    }
  }

  // On a thread of its own, which the end of the process leaves behind.
  void Finish() {
    const int64_t number = page_.requests.finish.load(std::memory_order_acquire);
    if (number == finishing_) return;
    finishing_ = number;
    cancel_.Cancel();  // the trainer no longer waits for an earlier one
    cancel_ = CancelToken();
    std::thread([this, number, cancel = cancel_] {
      internal::MutexLock after_earlier_ones(finish_mutex_);
      const absl::Status status =
          monitor_.Finish(std::chrono::milliseconds(page_.requests.finish_ms), cancel);
      internal::Put(internal::Message(status), page_.answers.reason);
      page_.answers.code = status.code();
      const auto newest = monitor_.latest();
      page_.answers.sequence = newest == nullptr ? 0 : newest->report.sequence;
      page_.answers.finished.store(number, std::memory_order_release);
    }).detach();
  }

  Monitor& monitor_;
  WorkerLink& link_;
  Page& page_;
  std::optional<Monitor::IdleScope> idle_;
  CancelToken cancel_;
  internal::Mutex finish_mutex_;  // held by Monitor::Finish
  int64_t finishing_;  // the newest request; those before this process was ready are not for it
};

}  // namespace

namespace internal {

void EndMeasuringProcess(std::string_view why) {
  Log(Severity::kError, StrCat("this process cannot measure: ", why));
  if (const auto link = OpenLink(); link.ok()) {
    // The first process did not fail, so another one may not either.
    if (!(*link)->replaces().empty()) _exit(EXIT_FAILURE);
    Put(why, (*link)->page()->answers.failure);
  }
  _exit(kFailedStatus);
}

void FollowTrainer(WorkerLink& link) {
  switch (link.Run()) {
    case WorkerLink::End::kStopped:
      return;
    case WorkerLink::End::kTrainerGone:
      _exit(EXIT_SUCCESS);
    case WorkerLink::End::kSilent:
      Log(Severity::kError, "the losses function does not return; this process ends");
      _exit(kSilentStatus);
  }
}

}  // namespace internal

bool IsMeasuringProcess() { return StartedBy().trainer > 0; }

int MeasureForTrainer(std::unique_ptr<Subject> subject, MonitorOptions options,
                      std::vector<std::unique_ptr<Exporter>> exporters) {
  absl::StatusOr<std::unique_ptr<WorkerLink>> opened = OpenLink();
  if (!opened.ok()) {
    internal::Log(Severity::kError, StrCat(opened.status()));
    return EXIT_FAILURE;
  }
  unsetenv(internal::kTrainerVariable);
  unsetenv(internal::kReplacesVariable);
  StepBack();
  at::set_num_threads(std::max(options.measuring_threads, 1));
  WorkerLink* const link = opened->release();  // used by threads until the end of this process
  std::thread([link] { internal::FollowTrainer(*link); }).detach();
  absl::StatusOr<std::unique_ptr<Monitor>> monitor = absl::FailedPreconditionError(
      StrCat("MonitorOptions.schedule is not the trainer's, which is ", link->manifest().schedule));
  if (internal::TextOf(options.schedule) == link->manifest().schedule) {
    monitor = CreateMonitor(std::move(subject), std::move(options), std::move(exporters), *link);
  }
  if (!monitor.ok()) internal::EndMeasuringProcess(internal::Message(monitor.status()));
  Requests requests(monitor->get(), link);
  link->page()->answers.ready.store(getpid(), std::memory_order_release);
  requests.Serve();
  // Threads may be left, and the program's static objects are not to be destroyed beneath them.
  _exit(EXIT_SUCCESS);
}

}  // namespace ptqwatch
