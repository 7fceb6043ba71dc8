// The contract of Monitor: training does not change by one bit, no process-global state is touched,
// and measuring beside training gives the same results as measuring in its place.
#include <gmock/gmock.h>
#include <signal.h>

#include <clocale>
#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "ATen/Parallel.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "c10/core/DefaultDtype.h"
#include "c10/core/GradMode.h"
#include "c10/core/InferenceMode.h"
#include "monitor/compute_thread.h"
#include "ptqwatch/monitor.h"
#include "snapshot/parameter_digest.h"
#include "support/probe_run.h"
#include "support/recording_exporter.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace monitor_contract_test {

using testing::TinyTrainer;

MonitorOptions Options(int64_t every) {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = every;
  options.duty_cycle = 1.0;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                        {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8},
                        {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = -1}};
  return options;
}

std::string GeneratorState() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

/// All process-global state that a monitor must not touch, as comparable text.
std::string GlobalState() {
  std::string state = "generator " + std::to_string(std::hash<std::string>()(GeneratorState()));
  const at::Context& context = at::globalContext();
  state += "\nthreads " + std::to_string(at::get_num_threads()) + " " +
           std::to_string(at::get_num_interop_threads());
  // A new thread starts with the process's defaults.
  state += std::async(std::launch::async, [] {
             return "\nnew thread " + std::to_string(at::get_num_threads());
           }).get();
  state += "\ndeterministic " + std::to_string(context.deterministicAlgorithms());
  state += "\nsdp " + std::to_string(context.userEnabledFlashSDP()) +
           std::to_string(context.userEnabledMathSDP()) +
           std::to_string(context.userEnabledMemEfficientSDP());
  state += "\nmatmul " + std::to_string(static_cast<int>(context.float32MatmulPrecision()));
  state += "\nmkldnn " + std::to_string(context.userEnabledMkldnn());
  state += std::string("\ndtype ") + std::string(c10::get_default_dtype().name());
  state += "\ngrad " + std::to_string(c10::GradMode::is_enabled()) +
           std::to_string(c10::InferenceMode::is_enabled());
  state += std::string("\nlocale ") + std::setlocale(LC_ALL, nullptr);
  for (int signal = 1; signal < 65; ++signal) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) == 0) {
      state += "\nsignal " + std::to_string(signal) + " " +
               std::to_string(reinterpret_cast<uintptr_t>(action.sa_handler)) + " " +
               std::to_string(action.sa_flags);
    }
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int signal = 1; signal < 65; ++signal) {
    state += sigismember(&mask, signal) == 1 ? "1" : "0";
  }
  return state;
}

TEST(MonitorContract, TouchesNoProcessGlobalState) {
  at::set_num_threads(2);
  TinyTrainer trainer;
  trainer.Step();
  const std::string before = GlobalState();
  auto recording = std::make_shared<testing::Recording>();
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  auto monitor = Monitor::Create(trainer.MakeSubject(), Options(1), std::move(exporters));
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  EXPECT_EQ(GlobalState(), before) << "after Create";
  (*monitor)->OnStep({.step = 1, .learning_rate = 1e-2});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(GlobalState(), before) << "while running";
  ASSERT_TRUE(recording->WaitForReports(1));
  EXPECT_EQ(GlobalState(), before) << "after a report";
  ASSERT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
  ASSERT_TRUE((*monitor)->Stop(std::chrono::seconds(5)).ok());
  monitor->reset();
  EXPECT_EQ(GlobalState(), before) << "after Stop";
  at::set_num_threads(1);
}

// Number of threads of this process, as counted by the kernel.
int Threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

TEST(MonitorContract, AMonitorThreadComputesAloneWhateverTheTrainerUses) {
  at::set_num_threads(4);
  std::thread([] {
    internal::InitComputeThread();
    EXPECT_EQ(at::get_num_threads(), 1);
    const int before = Threads();
    const at::Tensor a = at::ones({700, 700});
    at::mm(a, a);
    EXPECT_EQ(Threads(), before);
  }).join();
  at::set_num_threads(1);
}

class BitIdentity : public ::testing::TestWithParam<int> {};

TEST_P(BitIdentity, TrainingEndsWithTheSameBitsOnAndOff) {
  at::set_num_threads(GetParam());
  std::string weights[2];
  size_t reports = 0;
  for (bool on : {false, true}) {
    TinyTrainer trainer(/*seed=*/3);
    std::unique_ptr<Monitor> monitor;
    auto recording = std::make_shared<testing::Recording>();
    if (on) {
      std::vector<std::unique_ptr<Exporter>> exporters;
      exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
      auto created = Monitor::Create(trainer.MakeSubject(), Options(7), std::move(exporters));
      ASSERT_TRUE(created.ok()) << created.status();
      monitor = *std::move(created);
    }
    for (int64_t step = 1; step <= 150; ++step) {
      const double loss = trainer.Step();
      if (monitor) monitor->OnStep({.step = step, .learning_rate = 1e-2, .loss = loss});
      // Snapshots are then measured throughout the run, not only at its end.
      if (monitor && step == 75) {
        ASSERT_TRUE(monitor->Finish(std::chrono::seconds(60)).ok());
      }
    }
    if (monitor) {
      ASSERT_TRUE(monitor->Finish(std::chrono::seconds(60)).ok());
    }
    reports += recording->Reports().size();
    weights[on] = trainer.Bytes();
  }
  EXPECT_GE(reports, 2u);
  EXPECT_TRUE(weights[0] == weights[1]);
  at::set_num_threads(1);
}

INSTANTIATE_TEST_SUITE_P(Threads, BitIdentity, ::testing::Values(1, 2));

// The header that `report` was assembled with.
internal::ReportHeader HeaderOf(const Report& report) {
  internal::ReportHeader header{.run_id = report.run_id,
                                .attempt = report.attempt,
                                .fingerprint = report.fingerprint,
                                .snapshot_digest = report.snapshot_digest,
                                .sequence = report.sequence,
                                .plan = report.plan};
  header.snapshot.info = {.step = report.step,
                          .learning_rate = report.learning_rate.value(),
                          .tokens = report.tokens,
                          .loss = report.training_loss_nats};
  header.snapshot.trigger = report.trigger;
  header.snapshot.unix_seconds = report.snapshot_time_unix_seconds;
  internal::LrState& lr = header.snapshot.lr;
  lr.phase = report.lr_phase;
  lr.decay_onset_step = report.decay_onset_step;
  lr.rolled_back = report.rolled_back;
  for (const LrChangePoint& point : report.lr_change_points) {
    lr.points[static_cast<size_t>(lr.num_points++)] = point;
  }
  return header;
}

TEST(MonitorContract, MeasuringBesideTrainingEqualsMeasuringInItsPlace) {
  TinyTrainer trainer(/*seed=*/5);
  auto recording = std::make_shared<testing::Recording>();
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  auto monitor = Monitor::Create(trainer.MakeSubject(), Options(20), std::move(exporters));
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  std::map<int64_t, std::vector<at::Tensor>> weights;
  std::map<int64_t, OptimizerView> optimizers;
  for (int64_t step = 1; step <= 80; ++step) {
    trainer.Step();
    if (step % 20 == 0) {
      weights[step] = trainer.CloneTensors();
      optimizers[step] = trainer.Optimizer();
      for (OptimizedParameter& parameter : optimizers[step].parameters) {
        parameter.second_moment = parameter.second_moment.clone();
      }
    }
    (*monitor)->OnStep({.step = step, .learning_rate = 1e-2});
  }
  ASSERT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
  const auto reports = recording->Reports();
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(recording->run.optimizer, OptimizerKind::kAdamW);
  ASSERT_FALSE(reports.back()->report.averaging.empty());
  EXPECT_EQ(reports.back()->report.averaging[0].status, ProbeStatus::kOk);
  EXPECT_FALSE(reports.back()->report.mixed_precision.empty());

  // Measures the snapshots again on a fresh replica, one after the other, on a thread set up like
  // the monitor's.
  std::thread([&] {
    internal::InitComputeThread();
    TinyTrainer other(/*seed=*/9);
    auto subject = other.MakeSubject();
    const auto table = internal::MakeTensorTable(subject->LiveTensors());
    const auto suite = testing::OpenProbes(*subject, Options(20));
    ASSERT_TRUE(suite.ok()) << suite.status();
    internal::ProbeState state;
    for (const auto& live : reports) {
      internal::Snapshot snapshot;
      // Compares entries, not listed tensors, because the tied head is listed twice.
      for (size_t i = 0; i < table->entries.size(); ++i) {
        for (size_t listed = 0; listed < table->index.size(); ++listed) {
          if (table->index[listed] != static_cast<int>(i)) continue;
          snapshot.tensors.push_back(weights.at(live->report.step)[listed]);
          break;
        }
      }
      snapshot.optimizer.view = optimizers.at(live->report.step);
      (*suite)->Load(snapshot);
      EXPECT_EQ(*internal::DigestOfParameters((*suite)->session().replica(), {}),
                live->report.snapshot_digest);
      EXPECT_EQ(state.sequence, live->report.probe_state_sequence);
      ASSERT_TRUE(live->report.curvature);
      EXPECT_EQ(live->report.curvature->status, ProbeStatus::kOk)
          << live->report.curvature->status_detail;
      EXPECT_TRUE(live->report.curvature->edge_of_stability_ratio)
          << live->report.curvature->edge_of_stability_detail;
      Report again = testing::MeasureReport(**suite, &state, HeaderOf(live->report));
      again.cost = live->report.cost;
      EXPECT_TRUE(again == live->report) << "step " << live->report.step;
    }
  }).join();
}

}  // namespace monitor_contract_test
}  // namespace ptqwatch
