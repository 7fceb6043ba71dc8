#include "ptqwatch/monitor.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "monitor/linked_monitor.h"
#include "monitor_options.h"
#include "ptqwatch/status.h"
#include "python_call.h"
#include "python_subject.h"
#include "step_function.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {
namespace {

using std::chrono::milliseconds;

constexpr double kSecondsAtEnd = 2;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Ends the losses closure if Stop still waits for it after `patience`.
class ClosureWatch {
 public:
  ClosureWatch(std::shared_ptr<LossesCall> losses, milliseconds patience)
      : thread_([this, losses = std::move(losses), patience] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, patience, [this] { return stopped_; })) losses->Interrupt();
        }) {}
  ~ClosureWatch() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;  // last: uses the others
};

// Monitor as Python sees it.
class NativeMonitor {
 public:
  // In a worker, `link` leads to the trainer, whose model it is.
  NativeMonitor(std::unique_ptr<PythonSubject> model, MonitorOptions options,
                internal::WorkerLink* link)
      : losses_(model->losses_call()) {
    monitor_ = WithoutGil([&] {
      return internal::LinkedMonitor::Create(std::move(model), std::move(options), {}, link);
    });
  }
  ~NativeMonitor() {
    if (PythonEnded()) {
      new std::shared_ptr<Monitor>(std::move(monitor_));  // never destroyed
      return;
    }
    const py::gil_scoped_release unlocked;
    (void)Stop(kSecondsAtEnd);  // also ends a losses closure
    monitor_.reset();
  }
  NativeMonitor(const NativeMonitor&) = delete;
  NativeMonitor& operator=(const NativeMonitor&) = delete;

  py::object Step() const { return StepFunction(monitor_, mistakes_); }
  std::string Finish(double timeout, const CancelToken& cancel) {
    return Text(monitor_->Finish(FromSeconds(timeout), cancel));
  }
  std::string Stop(double timeout) {
    const milliseconds deadline = FromSeconds(timeout);
    const ClosureWatch watch(losses_, deadline / 2);
    return Text(monitor_->Stop(deadline));
  }
  std::optional<std::string> Latest() const {
    const auto newest = monitor_->latest();
    return newest == nullptr ? std::nullopt : std::optional(ToJson(*newest));
  }
  int64_t Sequence() const {
    const auto newest = monitor_->latest();
    return newest == nullptr ? 0 : newest->report.sequence;
  }
  std::string Failure() const {
    const std::string failure = Text(monitor_->creation_status());
    return failure.empty() ? mistakes_->Text() : failure;
  }
  Monitor& monitor() { return *monitor_; }

 private:
  const std::shared_ptr<StepMistakes> mistakes_ = std::make_shared<StepMistakes>();
  const std::shared_ptr<LossesCall> losses_;
  std::shared_ptr<Monitor> monitor_;
};

struct IdleScope {
  std::optional<Monitor::IdleScope> scope;
};

}  // namespace

void BindMonitor(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<CancelToken>(module, "CancelToken")
      .def(py::init<>())
      .def("cancel", &CancelToken::Cancel);
  py::class_<IdleScope>(module, "IdleScope").def("end", [](IdleScope& self) {
    self.scope.reset();
  });
  py::class_<NativeMonitor>(module, "Monitor")
      .def(py::init([](const py::object& adapter, const std::vector<std::vector<at::Tensor>>& probe,
                       const std::vector<std::vector<at::Tensor>>& calibration,
                       const std::vector<std::vector<at::Tensor>>& curvature,
                       const py::dict& options, internal::WorkerLink* link) {
             MonitorOptions read = OptionsFrom(options);
             return std::make_unique<NativeMonitor>(
                 std::make_unique<PythonSubject>(adapter, probe, calibration, curvature),
                 std::move(read), link);
           }),
           py::arg("adapter"), py::arg("probe"), py::arg("calibration"), py::arg("curvature"),
           py::arg("options"), py::arg("link") = py::none(), py::keep_alive<1, 7>())
      .def_property_readonly("step", &NativeMonitor::Step)
      .def("before_update", [](NativeMonitor& self) { self.monitor().BeforeUpdate(); })
      .def("finish", &NativeMonitor::Finish, Unlocked())
      .def("stop", &NativeMonitor::Stop, Unlocked())
      .def(
          "idle", [](NativeMonitor& self) { return IdleScope{self.monitor().Idle()}; },
          py::keep_alive<0, 1>())
      .def(
          "describe", [](NativeMonitor& self) { return self.monitor().Describe(); }, Unlocked())
      .def("failure", &NativeMonitor::Failure)
      .def("latest", &NativeMonitor::Latest, Unlocked())
      .def("sequence", &NativeMonitor::Sequence)
      .def(
          "status",
          [](NativeMonitor& self) {
            RunStatus status;
            status.monitor = self.monitor().status();
            return StatusJson(status);
          },
          Unlocked());
  module.def(
      "check_options", [](const py::dict& options) { (void)OptionsFrom(options); },
      py::arg("options"), "Raises TypeError or ValueError as watch() does.");
  module.def("end_python", &EndPython);
}

}  // namespace ptqwatch::python
