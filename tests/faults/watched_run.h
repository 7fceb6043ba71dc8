#ifndef PTQWATCH_TESTS_FAULTS_WATCHED_RUN_H_
#define PTQWATCH_TESTS_FAULTS_WATCHED_RUN_H_

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/square.h"
#include "ATen/ops/tanh.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"

namespace ptqwatch {

/// A trainer with its monitor.
struct Run {
  at::Tensor w = at::randn({64, 64});
  at::Tensor v = at::randn({64, 8});
  /// Called by the closure before it computes losses; null: nothing.
  std::shared_ptr<std::atomic<void (*)()>> closure =
      std::make_shared<std::atomic<void (*)()>>(nullptr);
  std::unique_ptr<Monitor> monitor;

  Monitor& Watch(MonitorOptions options = {}) {
    options.schedule.every = 1;
    options.duty_cycle = 1;
    FunctionSubjectOptions subject;
    subject.live = {{"w", w}, {"v", v}};
    subject.losses = [closure = closure](const TensorMap& t, const Batch& batch) -> LossValues {
      if (void (*act)() = *closure) act();
      return at::matmul(at::tanh(at::matmul(batch[0], t.at("w"))), t.at("v")).square().sum(1);
    };
    subject.probe = {{at::randn({32, 64})}};
    monitor = *Monitor::Create(MakeFunctionSubject(std::move(subject)), options);
    if (!monitor->creation_status().ok()) std::exit(40);
    return *monitor;
  }
  void Step(int64_t step) {
    v.mul_(0.999);
    monitor->OnStep({.step = step, .learning_rate = 1});
  }
};

/// Maps the names that fault_trainer takes to functions that return the exit code, 0 for success.
using Faults = std::map<std::string, int (*)()>;
Faults ProcessFaults();
Faults ClosureFaults();

}  // namespace ptqwatch

#endif  // PTQWATCH_TESTS_FAULTS_WATCHED_RUN_H_
