// Measures a random checkpoint block by block: seconds and memory, beside those that were
// predicted. Writes the checkpoint, in bfloat16, into a folder that has none.

#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "CLI/CLI.hpp"
#include "base/passive_waits.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "benchmarks/trajectory_floors.h"
#include "models/block_layout.h"
#include "models/checkpoint_files.h"
#include "models/checkpoint_reader.h"
#include "ptqwatch/offline/safetensors.h"
#include "streamed/measure_checkpoint.h"

namespace {

using namespace ptqwatch;            // NOLINT
using namespace ptqwatch::internal;  // NOLINT

// CPU seconds of the process in place of the time of day.
class CpuClock final : public Clock {
 public:
  std::chrono::nanoseconds Monotonic() const override {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  double UnixSeconds() const override { return Clock::Real()->UnixSeconds(); }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& cancelled) override {
    Clock::Real()->SleepFor(duration, cancelled);
  }
};

struct Flags {
  std::string folder;
  int64_t blocks = 16;
  int64_t hidden = 2048;
  int64_t heads = 16;
  int64_t intermediate = 8192;
  int64_t vocabulary = 100352;
  int64_t length = 1024;
  int64_t probe = 16;
  int64_t calibration = 16;
  int threads = 2;
  double gigabytes = 0;
  std::vector<std::string> quantizers = {"rtn3", "rtn4", "gptq3", "gptq4"};
  bool curvature = false;
  bool cpu = false;
  int floors = 0;
};

std::string ConfigText(const Flags& flags) {
  return StrCat(R"({"model_type": "olmo2", "hidden_act": "silu", "rms_norm_eps": 1e-06,
 "rope_theta": 500000, "attention_bias": false, "tie_word_embeddings": false,
 "max_position_embeddings": 4096, "vocab_size": )",
                flags.vocabulary, ", \"hidden_size\": ", flags.hidden,
                ", \"intermediate_size\": ", flags.intermediate,
                ", \"num_hidden_layers\": ", flags.blocks,
                ", \"num_attention_heads\": ", flags.heads,
                ", \"num_key_value_heads\": ", flags.heads, "}\n");
}

// SplitMix64.
uint64_t Scatter(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Uniform numbers that keep the size of activations; norms are 1.
TensorSource RandomTensor(const NamedShape& tensor, uint64_t seed) {
  const bool matrix = tensor.shape.size() == 2;
  const float bound = matrix ? std::sqrt(3.0f / static_cast<float>(tensor.shape[1])) : 0;
  return {.name = tensor.name,
          .dtype = TensorDtype::kBF16,
          .shape = tensor.shape,
          .read = [=](int64_t offset, absl::Span<char> out) {
            for (size_t i = 0; i < out.size(); i += 2) {
              const uint64_t at = static_cast<uint64_t>(offset) + i;
              const double unit = static_cast<double>(Scatter(seed ^ at) >> 11) * 0x1p-52 - 1;
              const float value = matrix ? bound * static_cast<float>(unit) : 1.0f;
              const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
              out[i] = static_cast<char>(bits & 0xff);
              out[i + 1] = static_cast<char>(bits >> 8);
            }
            return absl::OkStatus();
          }};
}

absl::Status WriteRandomCheckpoint(const Flags& flags) {
  const std::string text = ConfigText(flags);
  PTQWATCH_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(text, "config.json"));
  const OuterLayout outer = OuterLayoutOf(config);
  std::vector<NamedShape> shapes = {outer.embedding, outer.final_norm, outer.head};
  for (int64_t block = 0; block < config.blocks; ++block) {
    for (const NamedShape& shape : LayoutOf(config, block).Tensors()) shapes.push_back(shape);
  }
  std::vector<TensorSource> sources;
  for (const NamedShape& shape : shapes) {
    sources.push_back(RandomTensor(shape, Scatter(sources.size()) << 40));
  }
  std::filesystem::create_directories(flags.folder);
  PTQWATCH_RETURN_IF_ERROR(WriteSafetensors(flags.folder + "/model.safetensors", sources));
  std::ofstream(flags.folder + "/config.json") << text;
  return absl::OkStatus();
}

at::Tensor RandomTokens(int64_t sequences, int64_t length, int64_t vocabulary, int64_t phase) {
  const at::Tensor index = at::arange(sequences * (length + 1), at::kLong) + phase;
  return (index * 2654435761 % 2147483647 % vocabulary).view({sequences, length + 1});
}

void Print(const Report& report, const CheckpointCost& cost, double seconds,
           const ExecutionContext& context) {
  for (const auto& [part, spent] : report.cost) std::printf("%-12s %8.1f s\n", part.c_str(), spent);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("seconds      %8.1f\n", seconds);
  std::printf("peak memory  %8.2f GB resident, %.2f reserved, %.2f predicted\n",
              1024e-9 * static_cast<double>(usage.ru_maxrss),
              1e-9 * static_cast<double>(context.bytes->peak()),
              1e-9 * static_cast<double>(cost.bytes));
  std::printf("loss         %8.4f nats\n", report.probe_loss_nats.value_or(0));
  for (const QuantizationReport& quantizer : report.quantization) {
    std::printf("%-12s %8.4f +- %.4f nats %s\n", ShortName(KeyOf(quantizer)).c_str(),
                quantizer.delta_nats.value_or(0), quantizer.delta_stderr_nats.value_or(0),
                quantizer.status_detail.c_str());
  }
}

absl::Status Run(const Flags& flags) {
  at::set_num_threads(flags.threads);
  if (!std::filesystem::exists(flags.folder + "/config.json")) {
    PTQWATCH_RETURN_IF_ERROR(WriteRandomCheckpoint(flags));
  }
  PTQWATCH_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(flags.folder));
  const ModelConfig config = files.config();
  const CheckpointReader reader(std::move(files));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::Create(config, reader));
  const TrajectoryData data{
      .probe = RandomTokens(flags.probe, flags.length, config.vocabulary, 1),
      .calibration = RandomTokens(flags.calibration, flags.length, config.vocabulary, 1 << 20)};
  CheckpointMeasurement options;
  options.curvature.enabled = flags.curvature;
  options.max_bytes = static_cast<int64_t>(1e9 * flags.gigabytes);
  for (const std::string& name : flags.quantizers) {
    PTQWATCH_ASSIGN_OR_RETURN(options.quantizers.emplace_back(), ParseQuantizer(name));
  }
  if (flags.floors > 0 && config.mixture) {
    return absl::InvalidArgumentError("--floors: the parts are those of a model without experts");
  }
  if (flags.floors > 0) {
    benchmarks::PrintFloors(decoder, data, options, flags.threads, flags.floors);
    return absl::OkStatus();
  }
  ExecutionContext context;
  context.threads = flags.threads;
  CpuClock cpu;
  if (flags.cpu) context.clock = &cpu;
  Stopwatch watch(context.clock);
  options.progress = [&](const MeasurementProgress& progress) {
    std::printf("%s %d of %d: %.1f s\n", std::string(progress.part).c_str(),
                static_cast<int>(progress.done), static_cast<int>(progress.of), watch.Lap());
    std::fflush(stdout);
  };
  std::printf("%.2f billion parameters\n", 1e-9 * static_cast<double>(decoder.parameters()));
  const CheckpointCost cost = CostOf(decoder, data, options);
  std::printf("predicted: %.2f GB\n", 1e-9 * static_cast<double>(cost.bytes));
  watch.Lap();
  Stopwatch whole(context.clock);
  PTQWATCH_ASSIGN_OR_RETURN(const Report report,
                            MeasureCheckpoint(decoder, data, options, context));
  Print(report, cost, whole.Lap(), context);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  ptqwatch::internal::WaitPassively(argv);  // as the program that it stands for
  Flags flags;
  CLI::App app("Measures a random checkpoint block by block.");
  app.add_option("folder", flags.folder, "Checkpoint; written if there is none")->required();
  app.add_option("--blocks", flags.blocks, "Blocks of a checkpoint that is written");
  app.add_option("--hidden", flags.hidden, "Its width");
  app.add_option("--heads", flags.heads, "Its attention heads");
  app.add_option("--intermediate", flags.intermediate, "Width of its MLPs");
  app.add_option("--vocabulary", flags.vocabulary, "Its tokens");
  app.add_option("--length", flags.length, "Predictions per sequence");
  app.add_option("--probe", flags.probe, "Sequences that losses are compared on");
  app.add_option("--calibration", flags.calibration, "Sequences that quantizers see");
  app.add_option("--threads", flags.threads, "Threads");
  app.add_option("--gigabytes", flags.gigabytes, "Memory; 0: what is free");
  app.add_option("--quantizers", flags.quantizers, "Short names")->delimiter(',');
  app.add_flag("--cpu", flags.cpu, "Count CPU seconds: for one thread on a busy machine");
  app.add_option("--floors", flags.floors, "Measure parts alone beside plain products, this often");
  app.add_flag("--curvature", flags.curvature, "Measure curvature too");
  CLI11_PARSE(app, argc, argv);
  if (const absl::Status status = Run(flags); !status.ok()) {
    std::fprintf(stderr, "bench_trajectory: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
