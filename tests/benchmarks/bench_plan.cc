// How well a plan from shapes alone (ptqwatch plan --shapes) predicts what a snapshot takes: CPU
// seconds with and without curvature, and peak memory, for three models. Each is measured by a
// monitor that uses all of its data, with one thread.

#include <malloc.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/randint.h"
#include "char_model.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/plan_from_shapes.h"
#include "ptqwatch/torch_optimizer.h"
#include "torch/optim/adamw.h"
#include "torch/utils.h"

namespace ptqwatch::benchmarks {
namespace {

using examples::CharModel;
using examples::ModelConfig;

struct Case {
  const char* name;
  ModelConfig model;
  int64_t batch = 8;
  int64_t probe_batches = 8;
  int64_t calibration_batches = 8;
  int64_t curvature_sequences = 8;
};

const Case kCases[] = {
    {"char_gpt, its defaults",
     {.vocabulary = 91, .width = 32, .layers = 2, .heads = 2, .length = 64},
     32,
     32,
     4,
     64},
    {"char_gpt, width 128, 4 layers",
     {.vocabulary = 91, .width = 128, .layers = 4, .heads = 4, .length = 128}},
    {"bench_foreign's GPT",
     {.vocabulary = 50257, .width = 256, .layers = 4, .heads = 4, .length = 124},
     8,
     4,
     4,
     4},
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/// A line of /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == key && status >> kilobytes) return 1024 * kilobytes;
  }
  return 0;
}

/// From now on VmHWM is the peak since now. What was freed is given back.
void ForgetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

struct Cost {
  double seconds = 0;
  int64_t bytes = 0;
};

class Trainer {
 public:
  explicit Trainer(const Case& which)
      : which_(which),
        model_(examples::MakeGpt(which.model)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3)) {
    for (int i = 0; i < 10; ++i) Step();
  }

  /// One snapshot, with everything.
  absl::StatusOr<Cost> Measure(bool curvature) {
    MonitorOptions options;
    options.on_failure = OnFailure::kError;
    options.adapt_plan = false;
    options.relative_stderr = 1e-12;
    options.absolute_stderr_ratio = 0;
    options.max_probe_tokens = INT64_MAX;
    options.curvature.enabled = curvature;
    // Not among what is predicted.
    options.averaging.enabled = false;
    options.mixed_precision = false;
    options.training_threads = 1;
    ForgetPeak();
    const int64_t before = StatusBytes("VmRSS:");
    absl::StatusOr<std::unique_ptr<Monitor>> monitor = Monitor::Create(MakeSubject(), options);
    if (!monitor.ok()) return monitor.status();
    (*monitor)->OnStep({.step = 1, .learning_rate = 1e-3});
    const double begin = CpuSeconds();
    if (absl::Status done = (*monitor)->Finish(std::chrono::hours(1)); !done.ok()) return done;
    return Cost{CpuSeconds() - begin, StatusBytes("VmHWM:") - before};
  }

  std::vector<TensorShape> Shapes() const {
    std::vector<TensorShape> shapes;
    for (const auto& item : model_->named_parameters()) {
      shapes.push_back({item.key(), item.value().sizes().vec(), item.value().element_size()});
    }
    return shapes;
  }

 private:
  Batch DrawBatch(int64_t sequences) const {
    const at::Tensor text =
        at::randint(which_.model.vocabulary, {sequences, which_.model.length + 1}, at::kLong);
    return {text.slice(1, 0, which_.model.length).contiguous(), text.slice(1, 1).contiguous()};
  }
  std::vector<Batch> DrawBatches(int64_t count, int64_t sequences) const {
    std::vector<Batch> batches;
    for (int64_t i = 0; i < count; ++i) batches.push_back(DrawBatch(sequences));
    return batches;
  }
  void Step() {
    const Batch batch = DrawBatch(which_.batch);
    optimizer_.zero_grad();
    model_->TokenLosses(batch[0], batch[1]).mean().backward();
    optimizer_.step();
  }
  std::unique_ptr<Subject> MakeSubject() const {
    return MakeModuleSubject(
        model_,
        {.replica = [config = which_.model] { return examples::MakeGpt(config); },
         .losses = [](std::shared_ptr<CharModel>& replica, const Batch& batch) -> LossValues {
           return replica->TokenLosses(batch[0], batch[1]);
         },
         .probe = DrawBatches(which_.probe_batches, which_.batch),
         .calibration = DrawBatches(which_.calibration_batches, which_.batch),
         .curvature = DrawBatches(1, which_.curvature_sequences),
         .optimizer = [this] { return ViewOf(optimizer_, *model_); }});
  }

  const Case which_;
  std::shared_ptr<CharModel> model_;
  torch::optim::AdamW optimizer_;
};

absl::StatusOr<Cost> Predict(const Trainer& trainer, const Case& which, bool curvature,
                             const MachineRates& rates, bool print) {
  const ShapePlanOptions options{.sequence_tokens = which.model.length,
                                 .batch_sequences = which.batch,
                                 .probe_batches = which.probe_batches,
                                 .calibration_batches = which.calibration_batches,
                                 .curvature_sequences = curvature ? which.curvature_sequences : 0,
                                 .averaged_snapshots = 0,
                                 .adapt_plan = false,
                                 .attention_heads = which.model.heads};
  const absl::StatusOr<ShapePlan> plan = PlanFromShapes(trainer.Shapes(), options, rates);
  if (!plan.ok()) return plan.status();
  if (print) std::printf("%s", plan->Describe().c_str());
  return Cost{plan->snapshot_seconds, plan->peak_bytes};
}

void Print(const char* what, double predicted, double measured) {
  std::printf("%-32s predicted %8.3f  measured %8.3f  ratio %.2f\n", what, predicted, measured,
              predicted / measured);
}

absl::Status Compare(const Case& which, const MachineRates& rates) {
  torch::manual_seed(0);
  std::printf("\n%s\n", which.name);
  Trainer trainer(which);
  for (const bool curvature : {false, true}) {
    const absl::StatusOr<Cost> predicted = Predict(trainer, which, curvature, rates, curvature);
    if (!predicted.ok()) return predicted.status();
    const absl::StatusOr<Cost> measured = trainer.Measure(curvature);
    if (!measured.ok()) return measured.status();
    Print(curvature ? "CPU seconds with curvature" : "CPU seconds without curvature",
          predicted->seconds, measured->seconds);
    Print(curvature ? "megabytes with curvature" : "megabytes without curvature",
          1e-6 * static_cast<double>(predicted->bytes),
          1e-6 * static_cast<double>(measured->bytes));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) {
  using namespace ptqwatch::benchmarks;  // NOLINT(google-build-using-namespace)
  int64_t only = 0;
  CLI::App app("A plan from shapes beside what a snapshot takes, for three models.");
  app.add_option("--model", only, "Only the first, second or third of them")
      ->check(CLI::Range(1, 3));
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  const auto rates = ptqwatch::MeasureMachineRates(ptqwatch::DefaultQuantizers());
  if (!rates.ok()) {
    std::fprintf(stderr, "%s\n", rates.status().ToString().c_str());
    return 1;
  }
  for (const auto& width : rates->widths) {
    std::printf("width %5ld: Gram %.3g FLOP/s, quantizers", static_cast<long>(width.inputs),
                width.gram);
    for (const double rate : width.quantize) std::printf(" %.3g", rate);
    std::printf("\n");
  }
  std::printf("product %.3g FLOP/s, activation %.3g s\n", rates->product,
              rates->activation_seconds);
  for (int64_t i = 0; i < std::ssize(kCases); ++i) {
    if (only > 0 && only != i + 1) continue;
    if (const absl::Status status = Compare(kCases[i], *rates); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}
