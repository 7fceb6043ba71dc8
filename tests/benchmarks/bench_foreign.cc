// A trainer that knows nothing of this project's examples, watched with default options: a GPT with
// a vocabulary of 50,257, batches of whole sequences, a batch-mean loss, AdamW, warm-up and cosine.
// Prints how soon and how often reports come, and what the trainer's steps take meanwhile, between
// two stretches of the same training without a monitor.

#include <dlfcn.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <random>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/empty.h"
#include "char_model.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/torch_optimizer.h"
#include "text.h"
#include "torch/cuda.h"
#include "torch/optim/adamw.h"
#include "torch/utils.h"

namespace ptqwatch::benchmarks {
namespace {

using examples::CharModel;
using examples::ModelConfig;
using SteadyClock = std::chrono::steady_clock;

struct Flags {
  ModelConfig model{.vocabulary = 50257, .width = 256, .layers = 4, .heads = 4, .length = 124};
  int threads = 1;
  int64_t batch = 8;
  int64_t every = 20;
  double seconds = 480;
  int64_t steps_off = 20;
  int64_t probe_batches = 32;
  int64_t calibration_batches = 16;
  double finish_seconds = 120;
  std::string run_dir;
  std::string text;
  std::string device = "cpu";
  std::string monitor_device = "auto";
};

/// A program on the CPU does without LibTorch's CUDA half, which takes seconds to load.
bool HasDevice(const Flags& flags) {
  if (flags.device == "cpu") return true;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "--device %s: %s\n", flags.device.c_str(), dlerror());
    return false;
  }
  if (torch::cuda::is_available()) return true;
  std::fprintf(stderr, "--device %s: there is no GPU\n", flags.device.c_str());
  return false;
}

double Since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

double PeakMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// Every three characters of the text are one token.
std::vector<int64_t> Tokens(const std::vector<uint8_t>& text, int64_t vocabulary) {
  std::vector<int64_t> tokens;
  for (size_t i = 0; i + 3 <= text.size(); i += 3) {
    const int64_t number = (text[i] * 97 + text[i + 1]) * 97 + text[i + 2];
    tokens.push_back(number * 7919 % vocabulary);
  }
  return tokens;
}

Batch DrawBatch(const std::vector<int64_t>& tokens, const Flags& flags, std::mt19937_64& random) {
  const int64_t length = flags.model.length;
  const at::Tensor x = at::empty({flags.batch, length}, at::kLong);
  const at::Tensor y = at::empty({flags.batch, length}, at::kLong);
  for (int64_t row = 0; row < flags.batch; ++row) {
    const auto start =
        static_cast<int64_t>(random() % (tokens.size() - static_cast<size_t>(length) - 1));
    const int64_t* from = tokens.data() + start;
    std::copy_n(from, length, x.mutable_data_ptr<int64_t>() + row * length);
    std::copy_n(from + 1, length, y.mutable_data_ptr<int64_t>() + row * length);
  }
  return {x, y};
}

class Arrivals final : public Exporter {
 public:
  struct Arrival {
    double seconds = 0;
    int64_t step = 0;
    bool curvature = false;
  };
  explicit Arrivals(SteadyClock::time_point start) : start_(start) {}
  std::string_view name() const override { return "arrivals"; }
  absl::Status Start(StatusSource*, Control*) override { return absl::OkStatus(); }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    const Report& r = report->report;
    const bool curvature = r.curvature && r.curvature->status == ProbeStatus::kOk;
    const std::lock_guard lock(mutex_);
    arrivals_.push_back({Since(start_), r.step, curvature});
    std::printf("report of step %ld at %.1f s: %s\n", r.step, arrivals_.back().seconds,
                Costs(r).c_str());
    std::fflush(stdout);
  }
  void OnEvent(const Event& event) override {
    std::printf("event at %.1f s: %s\n", Since(start_), event.message.c_str());
    std::fflush(stdout);
  }
  void Stop(std::chrono::milliseconds) override {}
  std::vector<Arrival> Take() {
    const std::lock_guard lock(mutex_);
    return arrivals_;
  }

 private:
  static std::string Costs(const Report& report) {
    std::string text;
    for (const auto& [part, seconds] : report.cost) {
      char line[80];
      std::snprintf(line, sizeof(line), "%s %.2f  ", part.c_str(), seconds);
      text += line;
    }
    for (const QuantizationReport& q : report.quantization) {
      char line[96];
      std::snprintf(line, sizeof(line), "| %s%d %+.4f +- %.4f (%ld)  ",
                    std::string(ToString(q.method)).c_str(), q.bits, q.delta_nats.value_or(NAN),
                    q.delta_stderr_nats.value_or(NAN), static_cast<long>(q.probe_tokens));
      text += line;
    }
    return text;
  }

  const SteadyClock::time_point start_;
  std::mutex mutex_;
  std::vector<Arrival> arrivals_;
};

class Trainer {
 public:
  Trainer(const Flags& flags, std::vector<int64_t> training)
      : flags_(flags),
        tokens_(std::move(training)),
        model_(MakeModel(flags)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.1)) {}

  double Step() {
    const double rate =
        1e-3 * std::min(1.0, static_cast<double>(step_ + 1) / 50) *
        (0.55 + 0.45 * std::cos(std::min(M_PI, M_PI * static_cast<double>(step_) / 5000)));
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate);
    const Batch batch = DrawBatch(tokens_, flags_, random_);
    const at::Tensor loss = model_->TokenLosses(batch[0].to(device_), batch[1].to(device_)).mean();
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.step();
    ++step_;
    rate_ = rate;
    return loss.item<double>();
  }

  std::vector<double> Run(double seconds, int64_t steps, Monitor* monitor) {
    std::vector<double> times;
    const auto start = SteadyClock::now();
    while (Since(start) < seconds && (steps == 0 || std::ssize(times) < steps)) {
      const auto begin = SteadyClock::now();
      const double loss = Step();
      if (monitor != nullptr) {
        monitor->OnStep({.step = step_, .learning_rate = rate_, .loss = loss});
        if (first_due_ < 0 && step_ % flags_.every == 0) first_due_ = Since(start);
      }
      times.push_back(Since(begin));
    }
    return times;
  }

  std::unique_ptr<Subject> MakeSubject(const std::vector<int64_t>& held_out) {
    std::mt19937_64 random(1);
    std::vector<Batch> probe;
    std::vector<Batch> calibration;
    for (int64_t i = 0; i < flags_.probe_batches; ++i) {
      probe.push_back(DrawBatch(held_out, flags_, random));
    }
    for (int64_t i = 0; i < flags_.calibration_batches; ++i) {
      calibration.push_back(DrawBatch(tokens_, flags_, random));
    }
    return MakeModuleSubject(
        model_,
        {.replica = [config = flags_.model] { return examples::MakeGpt(config); },
         .losses = [](std::shared_ptr<CharModel>& replica, const Batch& batch) -> LossValues {
           return replica->TokenLosses(batch[0], batch[1]).mean();
         },
         .probe = std::move(probe),
         .calibration = std::move(calibration),
         .optimizer = [this] { return ViewOf(optimizer_, *model_); }});
  }

  double first_due() const { return first_due_; }

 private:
  static std::shared_ptr<CharModel> MakeModel(const Flags& flags) {
    auto model = examples::MakeGpt(flags.model);
    model->to(torch::Device(flags.device));
    return model;
  }

  const Flags flags_;
  const torch::Device device_{flags_.device};
  const std::vector<int64_t> tokens_;
  std::shared_ptr<CharModel> model_;
  torch::optim::AdamW optimizer_;
  std::mt19937_64 random_{0};
  int64_t step_ = 0;
  double rate_ = 0;
  double first_due_ = -1;
};

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

void PrintSteps(const char* what, const std::vector<double>& times) {
  double sum = 0;
  for (double seconds : times) sum += seconds;
  std::printf("%-12s %5zu steps: mean %.3f s, p50 %.3f, p99 %.3f, max %.3f\n", what, times.size(),
              sum / static_cast<double>(times.size()), Quantile(times, 0.5), Quantile(times, 0.99),
              Quantile(times, 1));
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

int Run(const Flags& flags) {
  const absl::StatusOr<examples::Text> text = examples::LoadText(flags.text);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.status().ToString().c_str());
    return 1;
  }
  torch::manual_seed(0);
  Trainer trainer(flags, Tokens(text->training, flags.model.vocabulary));
  if (flags.device != "cpu") trainer.Run(1e9, 5, nullptr);  // loads kernels
  std::vector<double> off = trainer.Run(1e9, flags.steps_off, nullptr);
  PrintSteps("before", off);
  const double peak_before = PeakMegabytes();

  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = flags.every;
  options.run_dir = flags.run_dir;
  options.monitor_device = flags.monitor_device;
  const auto create = SteadyClock::now();
  std::vector<std::unique_ptr<Exporter>> exporters;
  auto arrivals = std::make_unique<Arrivals>(create);
  Arrivals* const seen = arrivals.get();
  exporters.push_back(std::move(arrivals));
  auto monitor =
      Monitor::Create(trainer.MakeSubject(Tokens(text->validation, flags.model.vocabulary)),
                      options, std::move(exporters));
  if (!monitor.ok()) {
    std::fprintf(stderr, "%s\n", monitor.status().ToString().c_str());
    return 1;
  }
  const double created = Since(create);
  std::printf("Create took %.1f s\n%s", created, (*monitor)->Describe().c_str());
  std::fflush(stdout);
  const std::vector<double> on = trainer.Run(flags.seconds, 0, monitor->get());
  const double trained = Since(create);
  const auto finish = SteadyClock::now();
  const absl::Status finished =
      (*monitor)->Finish(std::chrono::milliseconds(std::llround(1e3 * flags.finish_seconds)));
  const double finish_seconds = Since(finish);
  (*monitor)->Stop(std::chrono::seconds(5)).IgnoreError();
  const double peak = PeakMegabytes();
  const std::vector<double> after = trainer.Run(1e9, flags.steps_off, nullptr);
  off.insert(off.end(), after.begin(), after.end());

  PrintSteps("off", off);
  PrintSteps("on", on);
  std::printf("throughput on/off: %.3f\n", Mean(off) / Mean(on));
  const double first_due = created + trainer.first_due();
  double last = first_due;
  double longest = 0;
  int reports = 0;
  int with_curvature = 0;
  for (const Arrivals::Arrival& arrival : seen->Take()) {
    if (arrival.seconds > trained) break;
    if (reports == 0)
      std::printf("first report %.1f s after its step\n", arrival.seconds - first_due);
    if (reports > 0) longest = std::max(longest, arrival.seconds - last);
    last = arrival.seconds;
    ++reports;
    with_curvature += arrival.curvature;
  }
  std::printf("%d reports while training, %d with curvature, %.0f an hour, longest gap %.1f s\n",
              reports, with_curvature, 3600.0 * reports / (trained - first_due),
              std::max(longest, trained - last));
  std::printf("Finish: %.1f s, %s\n", finish_seconds, finished.ToString().c_str());
  std::printf("peak memory: %.0f MB before Create, %.0f MB with the monitor\n", peak_before, peak);
  return 0;
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) {
  ptqwatch::benchmarks::Flags flags;
  CLI::App app(
      "A GPT with a large vocabulary and a batch-mean loss, watched with default options.");
  app.add_option("--threads", flags.threads, "Threads the trainer computes with");
  app.add_option("--every", flags.every, "Steps between snapshots");
  app.add_option("--seconds", flags.seconds, "Length of the training with the monitor");
  app.add_option("--steps-off", flags.steps_off, "Steps without it, before and after");
  app.add_option("--batch", flags.batch, "Sequences per step");
  app.add_option("--width", flags.model.width, "Width of the hidden state");
  app.add_option("--layers", flags.model.layers, "Blocks");
  app.add_option("--heads", flags.model.heads, "Heads of the attention");
  app.add_option("--vocabulary", flags.model.vocabulary, "Tokens");
  app.add_option("--length", flags.model.length, "Predictions per sequence");
  app.add_option("--probe-batches", flags.probe_batches, "Held-out batches");
  app.add_option("--finish-seconds", flags.finish_seconds, "Given to Finish");
  app.add_option("--run-dir", flags.run_dir, "Kept there");
  app.add_option("--text", flags.text, "Text to train on [the King James Bible]");
  app.add_option("--device", flags.device, "Where it trains: cpu, cuda, cuda:1");
  app.add_option("--monitor-device", flags.monitor_device, "As MonitorOptions::monitor_device");
  CLI11_PARSE(app, argc, argv);
  if (!ptqwatch::benchmarks::HasDevice(flags)) return 1;
  at::set_num_threads(flags.threads);
  at::set_num_interop_threads(1);
  return ptqwatch::benchmarks::Run(flags);
}
