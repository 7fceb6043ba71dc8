// Gram matrices and quantizing on a GPU. Times are the device's, between two events.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/device_gram.h"
#include "cuda/device_quantizer.h"

namespace ptqwatch::internal {
namespace {

template <typename T>
T OrExit(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}
void OrExit(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
void OrExit(cudaError_t error) { OrExit(CudaStatus(error, "bench_cuda")); }

struct Gpu {
  Gpu() {
    OrExit(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OrExit(cudaEventCreate(&begin));
    OrExit(cudaEventCreate(&end));
    device = OrExit(CudaDevice::Create({.stream = stream, .bytes = int64_t{12} << 30}));
    OrExit(cudaGetDeviceProperties(&properties, 0));
    int kilohertz = 0;
    OrExit(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
    // Dense bfloat16 operations a clock and multiprocessor.
    double each = 1024;
    if (properties.major == 8 && properties.minor == 0) each = 2048;
    if (properties.major == 8 && properties.minor == 6) each = 512;
    if (properties.major == 9) each = 4096;
    if (properties.major >= 10) each = 8192;
    peak = each * properties.multiProcessorCount * kilohertz * 1e3;
    // The data sheet of Hopper counts a lower clock than the card's highest.
    sheet_peak = properties.major == 9 ? each * properties.multiProcessorCount * 1.83e9 : peak;
    std::fprintf(stderr, "%s, bfloat16 peak %.0f TFLOP/s at %d MHz, %.0f by its data sheet\n",
                 properties.name, peak * 1e-12, kilohertz / 1000, sheet_peak * 1e-12);
    PrintLibraries();
  }

  // Which of the machine's CUDA libraries are in this process.
  static void PrintLibraries() {
    std::ifstream maps("/proc/self/maps");
    std::set<std::string> paths;
    for (std::string line; std::getline(maps, line);) {
      const size_t path = line.find('/');
      if (path == std::string::npos) continue;
      for (const char* name :
           {"/libcudart", "/libcublas", "/libcusolver", "/libcusparse", "/libnvJ"}) {
        if (line.find(name, path) != std::string::npos) paths.insert(line.substr(path));
      }
    }
    for (const std::string& path : paths) std::fprintf(stderr, "%s\n", path.c_str());
  }

  // Seconds of the device.
  template <typename Work>
  double Time(Work work) {
    OrExit(cudaEventRecord(begin, stream));
    work();
    OrExit(cudaEventRecord(end, stream));
    OrExit(cudaEventSynchronize(end));
    float milliseconds = 0;
    OrExit(cudaEventElapsedTime(&milliseconds, begin, end));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  float* Random(int64_t count) {
    // Drawn once for each length: that takes longer than most benchmarks.
    std::vector<float>& values = drawn_[count];
    if (values.empty()) {
      values.resize(static_cast<size_t>(count));
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      for (float& value : values) value = normal(random);
    }
    float* memory = OrExit(device->arena().TakeArray<float>(count, "numbers"));
    OrExit(device->Upload(memory, values.data(), 4 * count));
    return memory;
  }

  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaDeviceProp properties;
  double peak = 0;
  double sheet_peak = 0;
  std::unique_ptr<CudaDevice> device;

 private:
  std::map<int64_t, std::vector<float>> drawn_;
};

Gpu* gpu = nullptr;

// Made by the first benchmark that runs: a list of their names needs none.
void MakeGpu() {
  if (gpu == nullptr) gpu = new Gpu();
}

// Zeros are as good as other numbers for time, but not for power: rows are random bits that are
// finite in every type.
DeviceRows Rows(RowType type, int64_t rows, int64_t cols) {
  const int64_t bytes = rows * cols * (type == RowType::kFloat32 ? 4 : 2);
  static std::map<int64_t, std::vector<uint16_t>> drawn;
  std::vector<uint16_t>& bits = drawn[bytes / 2];
  if (bits.empty()) {
    bits.resize(static_cast<size_t>(bytes / 2));
    std::mt19937 random(2);
    for (uint16_t& one : bits) one = static_cast<uint16_t>(0x3c00 + (random() & 0x83ff));
  }
  void* memory = OrExit(gpu->device->arena().Take(bytes, "rows"));
  OrExit(gpu->device->Upload(memory, bits.data(), bytes));
  return {.data = memory, .type = type, .rows = rows, .cols = cols, .stride = cols};
}

// Shares of the peak at the highest clock and of the data sheet's count one triangle:
// rows * cols^2 operations.
void GramMatrix(benchmark::State& state) {
  MakeGpu();
  ArenaScope scope(gpu->device->arena());
  const RowType type = static_cast<RowType>(state.range(0));
  const int64_t cols = state.range(1);
  const int64_t count = state.range(2);
  const DeviceRows rows = Rows(type, count, cols);
  DeviceGram gram = OrExit(DeviceGram::Create(*gpu->device, cols));
  OrExit(gram.Add(rows));
  double seconds = 0;
  for (auto _ : state) {
    const double one = gpu->Time([&] { OrExit(gram.Add(rows)); });
    state.SetIterationTime(one);
    seconds += one;
  }
  const double operations =
      static_cast<double>(count) * static_cast<double>(cols) * static_cast<double>(cols);
  const double rate = operations * static_cast<double>(state.iterations()) / seconds;
  state.counters["peak share"] = rate / gpu->peak;
  state.counters["sheet share"] = rate / gpu->sheet_peak;
}
BENCHMARK(GramMatrix)
    ->ArgNames({"type", "inputs", "rows"})
    ->ArgsProduct({{0, 1, 2}, {1024, 4096, 8192}, {32768}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Time of Begin's work and Collect's, the Gram matrix being there.
void Layers(benchmark::State& state, QuantizationMethod method, bool baselines,
            QuantizationFormat format = QuantizationFormat::kInt) {
  MakeGpu();
  ArenaScope scope(gpu->device->arena());
  const int64_t rows = state.range(0);
  const int64_t cols = state.range(1);
  const int64_t count = state.range(2);
  const int64_t tokens = std::min<int64_t>(2 * cols, 8192);
  std::vector<DeviceGram> grams;
  for (int64_t i = 0; i < count; ++i) {
    grams.push_back(OrExit(DeviceGram::Create(*gpu->device, cols)));
    OrExit(grams.back().Add(
        {.data = gpu->Random(tokens * cols), .rows = tokens, .cols = cols, .stride = cols}));
    OrExit(grams.back().Finish());
  }
  std::vector<DeviceLayer> layers;
  for (int64_t i = 0; i < count; ++i) {
    DeviceLayer layer{.weight = gpu->Random(rows * cols),
                      .rows = rows,
                      .cols = cols,
                      .gram = &grams[static_cast<size_t>(i)]};
    layer.spec.method = method;
    layer.spec.bits = method == QuantizationMethod::kLlmInt8 ? 8 : 4;
    layer.spec.format = format;
    layer.spec.baselines = baselines;
    layers.push_back(layer);
  }
  const auto quantize = [&] {
    DeviceQuantizer quantizer(*gpu->device);
    OrExit(quantizer.Begin(layers));
    OrExit(quantizer.Collect().status());
  };
  quantize();  // loads kernels
  for (auto _ : state) state.SetIterationTime(gpu->Time(quantize));
}
void GptqCodesOnly(benchmark::State& state) { Layers(state, QuantizationMethod::kGptq, false); }
void Gptq(benchmark::State& state) { Layers(state, QuantizationMethod::kGptq, true); }
void GptqNvfp4CodesOnly(benchmark::State& state) {
  Layers(state, QuantizationMethod::kGptq, false, QuantizationFormat::kNvfp4);
}
void Rtn(benchmark::State& state) { Layers(state, QuantizationMethod::kRtn, true); }
void Awq(benchmark::State& state) { Layers(state, QuantizationMethod::kAwq, true); }
void Nf4(benchmark::State& state) { Layers(state, QuantizationMethod::kNf4, true); }
void LlmInt8(benchmark::State& state) { Layers(state, QuantizationMethod::kLlmInt8, true); }

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "cols", "layers"})
      ->Args({4096, 4096, 1})
      ->Args({4096, 14336, 1})
      ->Args({768, 768, 1})
      ->Args({768, 768, 16})
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK(GptqCodesOnly)->Apply(Shapes);
BENCHMARK(GptqNvfp4CodesOnly)->Apply(Shapes);
BENCHMARK(Gptq)->Apply(Shapes);
BENCHMARK(Rtn)->Apply(Shapes);
BENCHMARK(Awq)->Apply(Shapes);
BENCHMARK(Nf4)->Apply(Shapes);
BENCHMARK(LlmInt8)->Apply(Shapes);

}  // namespace
}  // namespace ptqwatch::internal

int main(int argc, char** argv) {
  if (!ptqwatch::internal::OrExit(ptqwatch::internal::HasGpu())) {
    std::puts("no GPU");
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  delete ptqwatch::internal::gpu;
  return 0;
}
