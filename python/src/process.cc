#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "bindings.h"
#include "children/server_keeper.h"
#include "children/server_program.h"
#include "children/worker_keeper.h"
#include "errors.h"
#include "monitor/process_trainer.h"
#include "monitor/rank_place.h"
#include "monitor/remote_monitor.h"
#include "monitor/shard_rank.h"
#include "monitor_options.h"
#include "ptqwatch/log.h"
#include "python_call.h"
#include "python_subject.h"
#include "step_function.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {
namespace {

namespace py = pybind11;
using internal::ProcessTrainer;
using internal::ServedDirectory;
using internal::ServerKeeper;
using internal::SharedServer;
using internal::WorkerKeeper;
using internal::WorkerLink;
using std::chrono::milliseconds;

internal::ShardPlace PlaceFrom(const py::object& fields) {
  auto [job, directory, rank, local_ranks, host, hosts] =
      fields.cast<std::tuple<std::string, std::string, int64_t, int64_t, int64_t, int64_t>>();
  return {std::move(job), std::move(directory), rank, local_ranks, host, hosts};
}

// The trainer's side, and the process that measures.
class NativeTrainer {
 public:
  // `shard`: (job, directory, rank, local ranks, host, hosts) of a model that is sharded, or None.
  NativeTrainer(const py::object& adapter, const py::dict& fields, double longest_silence,
                const py::object& shard) {
    MonitorOptions options = OptionsFrom(fields);
    RaiseIfError(internal::EnterRank(options));
    RaiseIfError(Validate(options));
    auto subject = std::make_unique<PythonSubject>(adapter, Batches(), Batches(), Batches());
    internal::Manifest manifest{.longest_silence_ms = FromSeconds(longest_silence).count()};
    if (!shard.is_none()) manifest.shard = PlaceFrom(shard);
    trainer_ = WithoutGil(
        [&] { return ProcessTrainer::Create(std::move(subject), options, std::move(manifest)); });
  }
  // Waits for threads that need no interpreter, and leaves a forked child's copy as it is.
  ~NativeTrainer() {
    if (!process_.here() || PythonEnded()) {
      new std::shared_ptr<ProcessTrainer>(std::move(trainer_));  // never destroyed
      (void)worker_.release();
      (void)server_.release();
      return;
    }
    const py::gil_scoped_release released;
    worker_.reset();
    server_.reset();
    trainer_.reset();
  }
  NativeTrainer(const NativeTrainer&) = delete;
  NativeTrainer& operator=(const NativeTrainer&) = delete;

  py::object Step() const { return StepFunction(trainer_, mistakes_); }
  std::string StepMistakesText() const { return mistakes_->Text(); }
  void ServeFinish() {
    const StepLock lock;
    trainer_->ServeFinish();
  }
  // Why the process that measures has not finished the last step, "" if it has, None until then.
  std::optional<std::string> FollowFinish() {
    const StepLock lock;
    const std::optional<absl::Status> finished = trainer_->FollowFinish();
    if (!finished) return std::nullopt;
    return std::string(finished->message());
  }

  void StartWorker(WorkerKeeper::Command command, double first_pause, double longest_pause) {
    worker_ = WithoutGil([&] {
      WorkerKeeper::Timing timing;
      timing.first_pause = FromSeconds(first_pause);
      timing.longest_pause = FromSeconds(longest_pause);
      return WorkerKeeper::Start(
          std::move(command), [this] { trainer_->WorkerEnded(); }, timing);
    });
  }
  py::dict Worker() const {
    const WorkerKeeper::State state =
        worker_ == nullptr ? WorkerKeeper::State{.over = true} : worker_->state();
    py::dict fields;
    fields["process"] = state.process;
    fields["restarts"] = state.restarts;
    fields["end"] = state.end;
    fields["over"] = state.over;
    return fields;
  }
  // Without the lock.
  void StopWorker(double timeout) {
    if (worker_ != nullptr) worker_->Stop(FromSeconds(timeout));
  }

  // Without the lock. Starts a server beside the run and waits up to `timeout` for it.
  void Serve(const ServeOptions& options, const ServedDirectory& directory, double timeout) {
    auto newest = std::make_shared<SharedServer::News>();  // used by one thread at a time
    const auto tell = [this, newest] { trainer_->page().server.Write(*newest); };
    ServerKeeper::Serve(options, directory,
                        {[=](const ServerStatus& status, pid_t process) {
                           *newest = {.status = status, .process = process};
                           tell();
                         },
                         [=](const absl::Status& failure, const std::string& message) {
                           newest->message = message;
                           newest->failed = !failure.ok();
                           tell();
                         }},
                        FromSeconds(timeout), server_)
        .IgnoreError();
  }
  ServerStatus Served() const { return server_ == nullptr ? ServerStatus() : server_->status(); }
  void StopServer(double timeout) {
    if (server_ != nullptr) server_->Stop(FromSeconds(timeout));
  }

  // The process that measures for a rank which only copies; 0 before it is ready.
  pid_t Measurer() const { return trainer_->page().answers.ready.load(); }

  ProcessTrainer& trainer() { return *trainer_; }
  bool here() const { return process_.here(); }

 private:
  const internal::ProcessMark process_;
  const std::shared_ptr<StepMistakes> mistakes_ = std::make_shared<StepMistakes>();
  std::shared_ptr<ProcessTrainer> trainer_;
  std::unique_ptr<WorkerKeeper> worker_;
  std::unique_ptr<ServerKeeper> server_;
};

std::unique_ptr<WorkerLink> OpenWorker(int memory, int wake, int trainer, pid_t process,
                                       const std::string& replaces) {
  return ValueOrRaise(WorkerLink::Open({.memory = memory,
                                        .wake = wake,
                                        .trainer = trainer,
                                        .process = process,
                                        .replaces = replaces}));
}

void BindTrainer(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<NativeTrainer>(module, "ProcessTrainer")
      .def(py::init<const py::object&, const py::dict&, double, const py::object&>(),
           py::arg("adapter"), py::arg("options"), py::arg("longest_silence"), py::arg("shard"))
      .def_property_readonly("step", &NativeTrainer::Step)
      .def("step_mistakes", &NativeTrainer::StepMistakesText)
      .def("serve_finish", &NativeTrainer::ServeFinish)
      .def("follow_finish", &NativeTrainer::FollowFinish)
      .def(
          "start_worker",
          [](NativeTrainer& self, const std::string& program,
             const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
             const std::vector<int>& files, int final_status, double first_pause,
             double longest_pause) {
            self.StartWorker({program, arguments, environment, files, final_status}, first_pause,
                             longest_pause);
          },
          py::arg("program"), py::arg("arguments"), py::arg("environment"), py::arg("files"),
          py::arg("final_status"), py::arg("first_pause"), py::arg("longest_pause"))
      .def("withdraw", [](NativeTrainer& self) { self.trainer().Withdraw(); })
      .def("worker", &NativeTrainer::Worker)
      .def("stop_worker", &NativeTrainer::StopWorker, Unlocked())
      .def(
          "serve",
          [](NativeTrainer& self, const py::dict& options, const std::string& run_dir,
             bool remove_run_dir, bool of_rank, double timeout) {
            const std::optional<ServeOptions> serve = OptionsFrom(options).serve;
            const py::gil_scoped_release released;
            self.Serve(serve.value_or(ServeOptions()),
                       {.run_dir = run_dir, .remove = remove_run_dir, .of_rank = of_rank}, timeout);
          },
          py::arg("options"), py::arg("run_dir"), py::arg("remove_run_dir"), py::arg("of_rank"),
          py::arg("timeout"))
      .def("served",
           [](const NativeTrainer& self) {
             const ServerStatus served = self.Served();
             py::dict fields;
             fields["state"] = std::string(ToString(served.state));
             fields["metrics"] = served.metrics;
             fields["grpc"] = served.grpc;
             fields["restarts"] = served.restarts;
             fields["reason"] = served.reason;
             return fields;
           })
      .def("stop_server", &NativeTrainer::StopServer, Unlocked())
      .def_property_readonly("measurer", &NativeTrainer::Measurer)
      .def_property_readonly("here", &NativeTrainer::here)
      .def_property_readonly("bytes", [](NativeTrainer& self) { return self.trainer().bytes(); })
      .def_property_readonly(
          "address",
          [](NativeTrainer& self) { return reinterpret_cast<uintptr_t>(&self.trainer().page()); })
      .def_property_readonly("file", [](NativeTrainer& self) { return self.trainer().file(); })
      .def_property_readonly("wake", [](NativeTrainer& self) { return self.trainer().wake(); })
      .def_property_readonly("lost", [](NativeTrainer& self) { return self.trainer().lost(); })
      .def_property_readonly("alarms", [](NativeTrainer& self) { return self.trainer().alarms(); });
}

}  // namespace

void BindProcess(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  BindTrainer(module);
  py::class_<WorkerLink>(module, "WorkerLink")
      .def(py::init(&OpenWorker), py::arg("memory"), py::arg("wake"), py::arg("trainer"),
           py::arg("process"), py::arg("replaces"))
      .def("run", &internal::FollowTrainer, Unlocked())
      .def("stop", &WorkerLink::Stop, Unlocked())
      .def("count_alarm", &WorkerLink::CountAlarm);
  module.def(
      "enter_rank",
      [](const py::dict& fields) {
        MonitorOptions options = OptionsFrom(fields);
        RaiseIfError(internal::EnterRank(options));
        return py::make_tuple(options.rank, options.run_dir);
      },
      "The rank of a monitor with these options, or None for a trainer alone, and its run "
      "directory.");
  module.def(
      "enter_shard",
      [](int64_t rank, int64_t ranks, const std::string& run_dir) {
        const auto shard = ValueOrRaise(internal::FindShardRank(
            {rank, ranks}, run_dir, [](const char* name) { return getenv(name); }));
        const internal::ShardPlace& place = shard.place;
        return py::make_tuple(py::make_tuple(place.job, place.directory, place.rank,
                                             place.local_ranks, place.host, place.hosts),
                              shard.measures);
      },
      "The place of a rank of a sharded model, and whether it starts the process that measures.");
  module.def("refuse_shard", [](const py::object& shard, const std::string& why) {
    internal::RefuseShard(PlaceFrom(shard), why);
  });
  module.def("shard_problem",
             [](const py::object& shard) { return internal::ShardProblem(PlaceFrom(shard)); });
  module.def("why_another_serves", &internal::WhyAnotherServes, py::arg("rank"));
  module.def("make_served_directory", [] { return ValueOrRaise(internal::MakeServedDirectory()); });
}

}  // namespace ptqwatch::python
