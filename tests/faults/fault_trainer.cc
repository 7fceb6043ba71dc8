// A trainer of a few lines that does one thing that trainers should not do, while a monitor
// watches it. `fault_trainer FAULT`; faults_test.py says what must come of it.

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "ATen/Context.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/clamp.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/square.h"
#include "ATen/ops/tanh.h"
#include "httplib.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/prometheus_exporter.h"

namespace ptqwatch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What the closure does from its second phase on, after Create.
enum class Closure { kQuick, kSlow, kThrowsInt, kExits, kDeep };

struct Run {
  at::Tensor w = at::randn({64, 64});
  at::Tensor v = at::randn({64, 8});
  std::shared_ptr<std::atomic<Closure>> closure =
      std::make_shared<std::atomic<Closure>>(Closure::kQuick);
  std::unique_ptr<Monitor> monitor;
  std::string address;

  Monitor& Watch(MonitorOptions options = {}) {
    options.schedule.every = 1;
    options.duty_cycle = 1;
    FunctionSubjectOptions subject;
    subject.live = {{"w", w}, {"v", v}};
    subject.losses = [closure = closure](const TensorMap& t, const Batch& batch) -> LossValues {
      Act(*closure);
      return at::matmul(at::tanh(at::matmul(batch[0], t.at("w"))), t.at("v")).square().sum(1);
    };
    subject.probe = {{at::randn({32, 64})}};
    std::vector<std::unique_ptr<Exporter>> exporters;
    auto prometheus = *PrometheusExporter::Create({.address = "127.0.0.1:0"});
    address = prometheus->address();
    exporters.push_back(std::move(prometheus));
    monitor =
        *Monitor::Create(MakeFunctionSubject(std::move(subject)), options, std::move(exporters));
    if (!monitor->creation_status().ok()) std::exit(40);
    return *monitor;
  }
  void Step(int64_t step) { monitor->OnStep({.step = step, .learning_rate = 1}); }

  static int Recurse(int left) {
    volatile char frame[4096];
    frame[0] = static_cast<char>(left);
    return left == 0 ? frame[0] : Recurse(left - 1) + frame[0];
  }
  static void Act(Closure closure) {
    switch (closure) {
      case Closure::kQuick:
        return;
      case Closure::kSlow: {
        at::Tensor x = at::ones({300, 300});
        for (int i = 0; i < 4000; ++i) x = at::mm(x, x).clamp(-1, 1);
        return;
      }
      case Closure::kThrowsInt:
        throw 7;
      case Closure::kExits:
        std::exit(0);
      case Closure::kDeep:
        Recurse(1024);  // 4 MiB and more
        return;
    }
  }
  bool Serves() const {
    httplib::Client client("http://" + address);
    const httplib::Result page = client.Get("/metrics");
    return page && page->status == 200;
  }
};

// So that the process ends somewhere else in the closure each time.
void Wait() { std::this_thread::sleep_for(milliseconds(50 + getpid() % 97)); }

int ExitWhileMeasuring() {
  static Run run;
  run.Watch();
  *run.closure = Closure::kSlow;
  run.Step(1);
  Wait();
  std::exit(0);
}

int StopMissesItsDeadline() {
  Run run;
  run.Watch();
  *run.closure = Closure::kSlow;
  run.Step(1);
  Wait();
  return run.monitor->Stop(milliseconds(50)).ok() ? 41 : 0;  // and the process ends
}

int ExitFromTheClosure() {
  static Run run;
  run.Watch();
  *run.closure = Closure::kExits;
  run.Step(1);
  run.monitor->Finish(seconds(20)).IgnoreError();
  return 41;
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
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      monitor.OnStep({.step = 2, .learning_rate = 1});
      monitor.control().RequestSnapshot().IgnoreError();
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
    if (!run.Serves()) return 43;
  }
  run.Step(3);
  if (!monitor.Finish(seconds(30)).ok()) return 44;
  return monitor.latest()->report.step == 3 ? 0 : 45;
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

int ClosureThrowsAnInt() {
  Run run;
  run.Watch();
  *run.closure = Closure::kThrowsInt;
  run.Step(1);
  if (!run.monitor->Finish(seconds(30)).ok()) return 41;
  if (run.monitor->status().health != Health::kDegraded) return 42;
  *run.closure = Closure::kQuick;
  run.Step(2);
  if (!run.monitor->Finish(seconds(30)).ok()) return 43;
  return run.monitor->status().health == Health::kOk ? 0 : 44;
}

int DeepClosure() {
  Run run;
  *run.closure = Closure::kDeep;
  run.Watch();
  run.Step(1);
  if (!run.monitor->Finish(seconds(30)).ok()) return 41;
  return run.monitor->latest()->report.quantization[0].status == ProbeStatus::kOk ? 0 : 42;
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

const std::map<std::string, int (*)()> kFaults = {
    {"exit", ExitWhileMeasuring},
    {"late_stop", StopMissesItsDeadline},
    {"exit_in_closure", ExitFromTheClosure},
    {"freed_storage", FreedStorage},
    {"fork", Fork},
    {"traps", FloatingPointTraps},
    {"throws_int", ClosureThrowsAnInt},
    {"deep_closure", DeepClosure},
    {"attach_and_stop", AttachAndStop},
    {"two_monitors", TwoMonitors},
};

}  // namespace
}  // namespace ptqwatch

int main(int argc, char** argv) {
  const auto fault = ptqwatch::kFaults.find(argc > 1 ? argv[1] : "");
  if (fault == ptqwatch::kFaults.end()) {
    std::fprintf(stderr, "usage: fault_trainer FAULT\n");
    return 2;
  }
  return fault->second();
}
