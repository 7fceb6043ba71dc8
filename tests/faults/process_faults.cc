// Faults in a trainer's process or model.

#include <fenv.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "ATen/ops/clamp.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "watched_run.h"

namespace ptqwatch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void ComputeForSeconds() {
  at::Tensor x = at::ones({300, 300});
  for (int i = 0; i < 4000; ++i) x = at::mm(x, x).clamp(-1, 1);
}

// Makes the process end at a different point of the closure each time.
void Wait() { std::this_thread::sleep_for(milliseconds(50 + getpid() % 97)); }

int ExitWhileMeasuring() {
  static Run run;
  run.Watch();
  *run.closure = ComputeForSeconds;
  run.Step(1);
  Wait();
  std::exit(0);
}

int StopMissesItsDeadline() {
  Run run;
  run.Watch();
  *run.closure = ComputeForSeconds;
  run.Step(1);
  Wait();
  return run.monitor->Stop(milliseconds(50)).ok() ? 41 : 0;  // and the process ends
}

int FreedStorage() {
  Run run;
  run.Watch();
  c10::StorageImpl& storage = *run.w.storage().unsafeGetStorageImpl();
  at::DataPtr data = storage.set_data_ptr(at::DataPtr(nullptr, at::kCPU));
  const size_t bytes = storage.nbytes();
  storage.set_nbytes(0);
  for (int64_t step = 1; step <= 4; ++step) run.Step(step);
  const MonitorStatus without = run.monitor->status();
  if (without.snapshots[static_cast<size_t>(SnapshotResult::kSkippedMismatch)] != 4) return 41;
  if (without.health != Health::kDegraded) return 42;
  storage.set_data_ptr(std::move(data));
  storage.set_nbytes(bytes);
  run.Step(5);
  if (!run.monitor->Finish(seconds(30)).ok()) return 43;
  return run.monitor->status().health == Health::kOk ? 0 : 44;
}

int Fork() {
  Run run;
  Monitor& monitor = run.Watch();
  run.Step(1);
  // A fork while another thread registers a destructor keeps the child inside exit().
  while (monitor.latest() == nullptr) std::this_thread::sleep_for(milliseconds(1));
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      monitor.OnStep({.step = 2, .learning_rate = 1});
      monitor.control().Do(TakeSnapshot{}).IgnoreError();
      if (monitor.status().step || monitor.latest() != nullptr) std::exit(1);
      if (!monitor.Finish(seconds(1)).ok() || !monitor.Stop(seconds(1)).ok()) std::exit(2);
      if (i == 0) std::exit(0);
      return 0;  // destroys the monitor
    }
    int status = -1;
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        kill(child, SIGKILL);
        return 41;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 42;
  }
  run.Step(3);
  if (!monitor.Finish(seconds(30)).ok()) return 43;
  return monitor.latest()->report.step == 3 ? 0 : 44;
}

int FloatingPointTraps() {
  feenableexcept(FE_INVALID | FE_DIVBYZERO);
  Run run;
  run.Watch();
  if (fegetexcept() != (FE_INVALID | FE_DIVBYZERO)) return 41;
  run.w.mutable_data_ptr<float>()[0] = std::nanf("");
  run.Step(1);
  if (!run.monitor->Finish(seconds(30)).ok()) return 42;
  const auto newest = run.monitor->latest();
  return newest->report.quantization[0].status == ProbeStatus::kNonFinite ? 0 : 43;
}

int AttachAndStop() {
  Run run;
  for (int64_t i = 0; i < 100; ++i) {
    run.Watch();
    run.Step(i);
    if (i % 3 == 0 && !run.monitor->Finish(seconds(30)).ok()) return 41;
    if (i % 2 == 0 && !run.monitor->Stop(seconds(5)).ok()) return 42;
    run.monitor.reset();
  }
  return 0;
}

int TwoMonitors() {
  Run first;
  Run second;
  first.Watch();
  second.Watch();
  for (int64_t step = 1; step <= 20; ++step) {
    first.Step(step);
    second.Step(step);
  }
  const bool ok =
      first.monitor->Finish(seconds(30)).ok() && second.monitor->Finish(seconds(30)).ok();
  return ok && first.monitor->latest()->report.step == 20 &&
                 second.monitor->latest()->report.step == 20
             ? 0
             : 41;
}

// A data loader draws while monitors are created; no number may come twice.
int AnotherThreadDraws() {
  std::atomic<bool> ended = false;
  std::vector<at::Tensor> drawn;
  std::thread loader([&] {
    while (!ended) {
      drawn.push_back(at::rand({1}, at::kDouble));
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  Run run;
  // Watch ends the process if a monitor is inert.
  for (int i = 0; i < 3; ++i) run.Watch();
  ended = true;
  loader.join();
  std::set<double> distinct;
  for (const at::Tensor& number : drawn) distinct.insert(number.item<double>());
  return drawn.size() > 3 && distinct.size() == drawn.size() ? 0 : 41;
}

}  // namespace

Faults ProcessFaults() {
  return {
      {"exit", ExitWhileMeasuring},    {"late_stop", StopMissesItsDeadline},
      {"freed_storage", FreedStorage}, {"fork", Fork},
      {"traps", FloatingPointTraps},   {"attach_and_stop", AttachAndStop},
      {"two_monitors", TwoMonitors},   {"draws_meanwhile", AnotherThreadDraws},
  };
}

}  // namespace ptqwatch
