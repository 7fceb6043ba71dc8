// Faults in the losses closure of a monitor.

#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "ATen/Parallel.h"
#include "watched_run.h"

namespace ptqwatch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int Recurse(int left) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(left);
  return left == 0 ? frame[0] : Recurse(left - 1) + frame[0];
}

void RecurseDeeply() { Recurse(1024); }  // 4 MiB and more

int ExitFromTheClosure() {
  static Run run;
  run.Watch();
  *run.closure = [] { std::exit(0); };
  run.Step(1);
  run.monitor->Finish(seconds(20)).IgnoreError();
  return 41;
}

int ClosureThrowsAnInt() {
  Run run;
  run.Watch();
  *run.closure = [] { throw 7; };
  run.Step(1);
  if (!run.monitor->Finish(seconds(30)).ok()) return 41;
  if (run.monitor->status().health != Health::kDegraded) return 42;
  *run.closure = nullptr;
  run.Step(2);
  if (!run.monitor->Finish(seconds(30)).ok()) return 43;
  return run.monitor->status().health == Health::kOk ? 0 : 44;
}

int DeepClosure() {
  Run run;
  *run.closure = RecurseDeeply;
  run.Watch();
  run.Step(1);
  if (!run.monitor->Finish(seconds(30)).ok()) return 41;
  return run.monitor->latest()->report.quantization[0].status == ProbeStatus::kOk ? 0 : 42;
}

// On a thread of the monitor, because the stack of the trainer's thread belongs to the trainer.
int DeepClosureLater() {
  Run run;
  run.Watch();
  *run.closure = RecurseDeeply;
  run.Step(1);
  if (!run.monitor->Finish(seconds(30)).ok()) return 41;
  return run.monitor->latest()->report.quantization[0].status == ProbeStatus::kOk ? 0 : 42;
}

std::atomic<bool> hangs{false};

int ClosureHangs() {
  static Run run;
  run.Watch();
  *run.closure = [] {
    hangs = true;
    while (true) pause();
  };
  run.Step(1);
  while (!hangs) std::this_thread::yield();
  for (int64_t step = 2; step <= 1000; ++step) run.Step(step);
  const auto start = std::chrono::steady_clock::now();
  if (run.monitor->Finish(milliseconds(100)).ok()) return 41;
  if (run.monitor->Stop(milliseconds(300)).ok()) return 42;
  run.Step(1001);
  run.monitor.reset();
  return std::chrono::steady_clock::now() - start < seconds(8) ? 0 : 43;
}

int ClosureChangesThreadCounts() {
  Run run;
  run.Watch();
  omp_set_num_threads(2);
  *run.closure = [] { omp_set_num_threads(7); };
  for (int64_t step = 1; step <= 3; ++step) {
    run.Step(step);
    if (!run.monitor->Finish(seconds(30)).ok()) return 41;
    // OpenMP counts threads per calling thread.
    if (omp_get_max_threads() != 2) return 42;
  }
  // ATen's count belongs to the process: the closure changed it, and the monitor goes on.
  *run.closure = [] { at::set_num_threads(3); };
  run.Step(4);
  if (!run.monitor->Finish(seconds(30)).ok()) return 43;
  if (run.monitor->latest()->report.step != 4) return 44;
  if (omp_get_max_threads() != 2) return 45;
  return run.monitor->status().health == Health::kOk ? 0 : 46;
}

}  // namespace

Faults ClosureFaults() {
  return {
      {"exit_in_closure", ExitFromTheClosure}, {"throws_int", ClosureThrowsAnInt},
      {"deep_closure", DeepClosure},           {"deep_closure_later", DeepClosureLater},
      {"closure_hangs", ClosureHangs},         {"closure_sets_threads", ClosureChangesThreadCounts},
  };
}

}  // namespace ptqwatch
