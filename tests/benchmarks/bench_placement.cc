// Where a monitor's work loses the least training time when no core is spare: on a thread of its
// own at a low duty cycle, or in bursts while the trainer waits inside its step. Windows of
// training without work, with work beside it, and with bursts alternate in one process, in random
// order. Printed is the training time lost for each second of work, work being counted in forward
// passes that take a second on one quiet core.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/randint.h"
#include "base/thread_priority.h"
#include "char_model.h"
#include "monitor/compute_thread.h"
#include "ptqwatch/execution_context.h"
#include "torch/optim/adamw.h"
#include "torch/utils.h"

namespace ptqwatch::benchmarks {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Flags {
  examples::ModelConfig model{
      .vocabulary = 96, .width = 128, .layers = 4, .heads = 4, .length = 128};
  int threads = 2;
  int64_t batch = 8;
  int64_t window = 20;
  int64_t rounds = 40;
  double duty = 0.25;
  double burst_ms = 250;
  double share = 0.1;  // of the time that bursts take
};

enum class Mode { kOff, kBeside, kBursts, kBurstsOnTrainer };
constexpr std::array<const char*, 4> kNames = {"off", "duty cycle", "bursts, own thread",
                                               "bursts, trainer's threads"};

double Since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? NAN : values[values.size() / 2];
}

/// Forward passes of a replica, in small pieces: one sequence each.
class Work {
 public:
  explicit Work(const Flags& flags)
      : model_(examples::MakeGpt(flags.model)),
        x_(at::randint(flags.model.vocabulary, {1, model_->inputs()}, at::kLong)),
        y_(at::randint(flags.model.vocabulary, {1, flags.model.length}, at::kLong)) {}
  void Piece() {
    const at::NoGradGuard no_grad;
    model_->TokenLosses(x_, y_);
    pieces.fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic<int64_t> pieces{0};

 private:
  const std::shared_ptr<examples::CharModel> model_;
  const at::Tensor x_;
  const at::Tensor y_;
};

/// Works as the mode says until it is told to end.
class WorkThread {
 public:
  WorkThread(Work& work, const Flags& flags)
      : work_(work), flags_(flags), thread_([this] { Run(); }) {}
  ~WorkThread() {
    end_ = true;
    thread_.join();
  }
  void Set(Mode mode) { mode_ = mode; }
  /// The trainer waits while this thread works for `seconds`.
  void Burst(double seconds) {
    granted_ = seconds;
    while (granted_.load() > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

 private:
  void Run() {
    internal::InitComputeThread();
    internal::SetThreadPriority(internal::ThreadPriority::kBatch);
    const Pacer pacer(flags_.duty, Clock::Real());
    const CancelToken never;
    while (!end_) {
      if (mode_ == Mode::kBeside) {
        pacer.Begin();
        while (mode_ == Mode::kBeside && !end_) {
          work_.Piece();
          pacer.Pause(never);
        }
      } else if (granted_.load() > 0) {
        const auto start = SteadyClock::now();
        while (Since(start) < granted_.load()) work_.Piece();
        granted_ = 0;
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
  }

  Work& work_;
  const Flags& flags_;
  std::atomic<Mode> mode_{Mode::kOff};
  std::atomic<double> granted_{0};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

class Trainer {
 public:
  explicit Trainer(const Flags& flags)
      : flags_(flags),
        model_(examples::MakeGpt(flags.model)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3)),
        x_(at::randint(flags.model.vocabulary, {flags.batch, model_->inputs()}, at::kLong)),
        y_(at::randint(flags.model.vocabulary, {flags.batch, flags.model.length}, at::kLong)) {}

  void Step() {
    optimizer_.zero_grad();
    model_->TokenLosses(x_, y_).mean().backward();
    optimizer_.step();
  }

  // Seconds of a window in this mode.
  double Window(Mode mode, Work& work, WorkThread& thread) {
    thread.Set(mode);
    const auto start = SteadyClock::now();
    double burst = 0;
    for (int64_t i = 0; i < flags_.window; ++i) {
      Step();
      const bool bursts = mode == Mode::kBursts || mode == Mode::kBurstsOnTrainer;
      if (!bursts || burst > flags_.share * Since(start)) continue;
      const auto begin = SteadyClock::now();
      const double seconds = flags_.burst_ms * 1e-3;
      if (mode == Mode::kBursts) {
        thread.Burst(seconds);
      } else {
        while (Since(begin) < seconds) work.Piece();
      }
      burst += Since(begin);
    }
    const double seconds = Since(start);
    thread.Set(Mode::kOff);
    return seconds;
  }

 private:
  const Flags& flags_;
  const std::shared_ptr<examples::CharModel> model_;
  torch::optim::AdamW optimizer_;
  const at::Tensor x_;
  const at::Tensor y_;
};

void Run(const Flags& flags) {
  torch::manual_seed(0);
  Work work(flags);
  Trainer trainer(flags);
  for (int i = 0; i < 20; ++i) trainer.Step();
  double piece_seconds = 0;
  internal::OnComputeThread(1, [&] {
    std::vector<double> seconds;
    for (int i = 0; i < 100; ++i) {
      const auto start = SteadyClock::now();
      work.Piece();
      seconds.push_back(Since(start));
    }
    piece_seconds = Median(seconds);
    return absl::OkStatus();
  }).IgnoreError();
  WorkThread thread(work, flags);
  std::mt19937_64 random(0);
  std::array<std::vector<double>, 4> lost;
  std::array<std::vector<double>, 4> amount;
  for (int64_t round = 0; round < flags.rounds; ++round) {
    std::array<Mode, 4> order = {Mode::kOff, Mode::kBeside, Mode::kBursts, Mode::kBurstsOnTrainer};
    std::shuffle(order.begin(), order.end(), random);
    std::array<double, 4> seconds{};
    std::array<double, 4> worked{};
    for (Mode mode : order) {
      const auto index = static_cast<size_t>(mode);
      const int64_t before = work.pieces;
      seconds[index] = trainer.Window(mode, work, thread);
      worked[index] = static_cast<double>(work.pieces - before) * piece_seconds;
    }
    for (size_t mode = 1; mode < 4; ++mode) {
      if (worked[mode] <= 0) continue;
      lost[mode].push_back((seconds[mode] - seconds[0]) / worked[mode]);
      amount[mode].push_back(worked[mode] / seconds[mode]);
    }
  }
  std::printf("%d training threads, a piece of work takes %.1f ms\n", flags.threads,
              1e3 * piece_seconds);
  for (size_t mode = 1; mode < 4; ++mode) {
    std::vector<double> sorted = lost[mode];
    std::sort(sorted.begin(), sorted.end());
    if (sorted.empty()) continue;
    std::printf(
        "%-26s lost %.2f s of training a second of work (quartiles %.2f %.2f), "
        "work %.0f %% of the time\n",
        kNames[mode], Median(sorted), sorted[sorted.size() / 4], sorted[sorted.size() * 3 / 4],
        100 * Median(amount[mode]));
  }
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) {
  ptqwatch::benchmarks::Flags flags;
  CLI::App app("Training time lost to work at a duty cycle, and to work in bursts.");
  app.add_option("--threads", flags.threads, "Threads the trainer computes with")
      ->check(CLI::PositiveNumber);
  app.add_option("--width", flags.model.width, "Width of the hidden state")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", flags.batch, "Sequences per step")->check(CLI::PositiveNumber);
  app.add_option("--window", flags.window, "Steps per window")->check(CLI::PositiveNumber);
  app.add_option("--rounds", flags.rounds, "Windows of each kind")->check(CLI::PositiveNumber);
  app.add_option("--duty", flags.duty, "Duty cycle beside training")->check(CLI::Range(0.01, 1.0));
  app.add_option("--burst-ms", flags.burst_ms, "Length of a burst")->check(CLI::PositiveNumber);
  app.add_option("--share", flags.share, "Share of the time in bursts")
      ->check(CLI::Range(0.01, 0.9));
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);
  ptqwatch::benchmarks::Run(flags);
  return 0;
}
