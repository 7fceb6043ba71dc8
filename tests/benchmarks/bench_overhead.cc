// What the monitor's work costs each step of char_gpt's training. One process trains; the monitor
// works and is held up in windows of some 50 steps, in pairs of random order, so that whatever else
// the machine does falls on both alike. A snapshot is due at every step: as soon as one is measured
// the next one is taken, so the monitor works all the time that it may. Without a spare core that
// is a few percent of the time. With --control the second core also has windows in which it only
// counts in a register: what they cost, no monitor can avoid on this machine.

#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/empty.h"
#include "benchmarks/held_clock.h"
#include "benchmarks/paired_ratio.h"
#include "char_model.h"
#include "optimizer.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/torch_optimizer.h"
#include "sequences.h"
#include "text.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/utils.h"

namespace ptqwatch::benchmarks {
namespace {

using examples::CharModel;
using examples::SequenceShape;
using SteadyClock = std::chrono::steady_clock;

struct Flags {
  examples::ModelConfig model;
  int threads = 1;
  int64_t batch = 8;
  double seconds = 300;
  int64_t window = 50;
  int64_t probe_sequences = 1024;
  std::optional<double> duty_cycle;
  bool control = false;
  std::string text;
};

double Since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

/// The training loop of char_gpt, at a constant learning rate.
class Trainer {
 public:
  Trainer(const Flags& flags, const examples::Text& text)
      : flags_(flags),
        text_(text),
        model_(examples::MakeGpt(flags.model)),
        parameters_(model_->parameters()),
        optimizer_(examples::MakeAdamW(model_->parameters(), 0.1)),
        shape_{model_->inputs(), flags.model.length},
        x_(at::empty({flags.batch, shape_.inputs}, at::kLong)),
        y_(at::empty({flags.batch, shape_.length}, at::kLong)) {
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(3e-3);
  }

  /// Seconds of one step, with the monitor's call.
  double Step(Monitor* monitor) {
    const auto start = SteadyClock::now();
    FillSequences(text_.training, shape_, DrawStarts(text_.training, shape_, flags_.batch, random_),
                  x_, y_);
    const at::Tensor loss = model_->TokenLosses(x_, y_).mean();
    optimizer_.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters_, 1.0);
    optimizer_.step();
    const StepInfo info{.step = ++step_,
                        .learning_rate = 3e-3,
                        .tokens = step_ * flags_.batch * flags_.model.length,
                        .loss = loss.item<double>()};
    if (monitor != nullptr) monitor->OnStep(info);
    return Since(start);
  }

  std::unique_ptr<Subject> MakeSubject() const {
    const auto batches = [&](std::span<const uint8_t> text, int64_t count) {
      return MakeBatches(text, shape_, EvenStarts(text, shape_, count, 32), 32);
    };
    return MakeModuleSubject(
        model_,
        {.replica = [config = flags_.model] { return examples::MakeGpt(config); },
         .losses = [](std::shared_ptr<CharModel>& replica, const Batch& batch) -> LossValues {
           return replica->TokenLosses(batch[0], batch[1]);
         },
         .probe = batches(text_.validation, flags_.probe_sequences),
         .calibration = batches(text_.training, std::min<int64_t>(128, flags_.probe_sequences)),
         .optimizer = [this] { return ViewOf(optimizer_, *model_); }});
  }

 private:
  const Flags flags_;
  const examples::Text& text_;
  std::shared_ptr<CharModel> model_;
  const std::vector<at::Tensor> parameters_;
  torch::optim::AdamW optimizer_;
  const SequenceShape shape_;
  const at::Tensor x_;
  const at::Tensor y_;
  std::mt19937_64 random_{0};
  int64_t step_ = 0;
};

/// A thread of idle priority that keeps a core busy without touching memory.
class Spinner {
 public:
  Spinner() : thread_([this] { Run(); }) {}
  ~Spinner() {
    Set(State::kEnd);
    thread_.join();
  }
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

  void Spin() { Set(State::kSpin); }
  void Rest() { Set(State::kRest); }

 private:
  enum class State { kRest, kSpin, kEnd };

  void Set(State state) {
    state_ = state;
    state_.notify_one();
  }
  void Run() {
    const sched_param parameter{};
    sched_setscheduler(0, SCHED_IDLE, &parameter);
    while (state_ != State::kEnd) {
      state_.wait(State::kRest);
      while (state_ == State::kSpin) {
        for (int i = 0; i < 100000; ++i) asm volatile("" : "+r"(count_));
      }
    }
  }

  std::atomic<State> state_{State::kRest};
  uint64_t count_ = 0;
  std::thread thread_;
};

enum class Window { kBusy, kPaused, kControl };

struct Times {
  std::array<std::vector<double>, 3> steps;  // by Window
  std::vector<Pair> pairs;                   // busy and paused windows
  std::vector<Pair> controls;                // control and paused windows
};

/// Trains until the monitor stands at a checkpoint, or has nothing to do.
void HoldUp(Trainer& trainer, Monitor& monitor, HeldClock& clock) {
  constexpr int kEnough = 1000;
  clock.Hold();
  for (int i = 0; i < kEnough; ++i) {
    trainer.Step(&monitor);
    if (clock.holds() || (i > 2 && !monitor.status().busy)) return;
  }
  std::fprintf(stderr, "the monitor reached no checkpoint within %d steps\n", kEnough);
}

Times Measure(Trainer& trainer, Monitor& monitor, HeldClock& clock, const Flags& flags) {
  Times times;
  std::mt19937_64 random(2);
  // What is called for the first time takes longer.
  while (monitor.status().reports_total < 1) trainer.Step(&monitor);
  Spinner spinner;
  std::vector<Window> windows = {Window::kBusy, Window::kPaused};
  if (flags.control) windows.push_back(Window::kControl);
  const auto start = SteadyClock::now();
  while (times.pairs.size() < 2 || Since(start) < flags.seconds) {
    std::shuffle(windows.begin(), windows.end(), random);
    std::array<double, 3> sums{};
    for (const Window window : windows) {
      if (window == Window::kBusy) {
        clock.Release();
        for (int i = 0; i < 3; ++i) trainer.Step(&monitor);
      } else {
        HoldUp(trainer, monitor, clock);
      }
      if (window == Window::kControl) spinner.Spin();
      for (int64_t i = 0; i < flags.window; ++i) {
        const double seconds = trainer.Step(&monitor);
        times.steps[static_cast<size_t>(window)].push_back(seconds);
        sums[static_cast<size_t>(window)] += seconds;
      }
      spinner.Rest();
    }
    const auto [busy, paused, control] = sums;
    times.pairs.push_back({busy, paused});
    if (flags.control) times.controls.push_back({control, paused});
  }
  clock.Release();
  return times;
}

void PrintSteps(const char* name, const std::vector<double>& steps) {
  if (steps.empty()) return;
  std::printf("%-7s step, ms: p50 %.3f  p99 %.3f  max %.3f\n", name, 1e3 * Quantile(steps, 0.5),
              1e3 * Quantile(steps, 0.99), 1e3 * Quantile(steps, 1));
}

void PrintRatio(const char* name, const Interval& ratio) {
  std::printf("%s %.4f, 95 %% interval %.4f to %.4f (width %.4f)\n", name, ratio.value, ratio.low,
              ratio.high, ratio.high - ratio.low);
}

int Run(const Flags& flags) {
  const absl::StatusOr<examples::Text> text = examples::LoadText(flags.text);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.status().ToString().c_str());
    return 1;
  }
  torch::manual_seed(0);
  Flags resolved = flags;
  resolved.model.vocabulary = text->vocabulary;
  Trainer trainer(resolved, *text);
  HeldClock clock;
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = 1;
  options.training_threads = flags.threads;
  options.duty_cycle = flags.duty_cycle;
  options.clock = &clock;
  absl::StatusOr<std::unique_ptr<Monitor>> monitor =
      Monitor::Create(trainer.MakeSubject(), options);
  if (!monitor.ok()) {
    std::fprintf(stderr, "%s\n", monitor.status().ToString().c_str());
    return 1;
  }
  const Times times = Measure(trainer, **monitor, clock, flags);
  const MonitorStatus status = (*monitor)->status();
  // The monitor thread reads the clock, so it must end first.
  if (const absl::Status stopped = (*monitor)->Stop(std::chrono::minutes(1)); !stopped.ok()) {
    std::fprintf(stderr, "%s\n", stopped.ToString().c_str());
    return 1;
  }
  std::printf(
      "%zu pairs of windows of %ld steps, %d training threads, %ld reports, duty cycle %.2f\n",
      times.pairs.size(), static_cast<long>(flags.window), flags.threads,
      static_cast<long>(status.reports_total), status.duty_cycle);
  PrintRatio("busy / paused, all steps:      ", Bootstrap(times.pairs, RatioOfSums));
  PrintRatio("busy / paused, median of pairs:", Bootstrap(times.pairs, MedianOfRatios));
  if (flags.control) {
    PrintRatio("control / paused, all steps:      ", Bootstrap(times.controls, RatioOfSums));
    PrintRatio("control / paused, median of pairs:", Bootstrap(times.controls, MedianOfRatios));
  }
  PrintSteps("busy", times.steps[0]);
  PrintSteps("paused", times.steps[1]);
  PrintSteps("control", times.steps[2]);
  return 0;
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) {
  ptqwatch::benchmarks::Flags flags;
  CLI::App app("Step times of char_gpt while the monitor works and while it is held up.");
  app.add_option("--threads", flags.threads, "Threads the trainer computes with");
  app.add_option("--seconds", flags.seconds, "How long to measure");
  app.add_option("--window", flags.window, "Steps per window");
  app.add_option("--batch", flags.batch, "Sequences per step");
  app.add_option("--width", flags.model.width, "Width of the hidden state");
  app.add_option("--layers", flags.model.layers, "Blocks");
  app.add_option("--heads", flags.model.heads, "Attention heads");
  app.add_option("--length", flags.model.length, "Predictions per sequence");
  app.add_option("--probe-sequences", flags.probe_sequences, "Held-out sequences");
  app.add_option("--duty-cycle", flags.duty_cycle,
                 "Share of the time that the monitor works, whatever the machine has to spare");
  app.add_flag("--control", flags.control,
               "Also windows in which a thread counts in a register instead of the monitor");
  app.add_option("--text", flags.text, "Text to train on [the King James Bible]");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);
  return ptqwatch::benchmarks::Run(flags);
}
