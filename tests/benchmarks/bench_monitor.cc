// What the training thread pays. OnStepNothingDue must stay under a microsecond and allocate
// nothing; OnStepSnapshot is the copy of the weights (the slot is emptied outside the measured
// time).

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"

namespace {

thread_local int64_t allocations = 0;

}  // namespace

// Every operator new of this thread is counted, LibTorch's too. Not inlined: g++ takes malloc and
// delete for a mismatch otherwise.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using ptqwatch::Batch;
using ptqwatch::LossValues;
using ptqwatch::Monitor;
using ptqwatch::MonitorOptions;
using ptqwatch::NamedTensor;
using ptqwatch::TensorMap;

// `layers` square layers of `width`.
std::unique_ptr<Monitor> Make(int64_t width, int64_t layers, int64_t every) {
  std::vector<NamedTensor> live;
  for (int64_t i = 0; i < layers; ++i) {
    live.push_back({"layer" + std::to_string(i), at::zeros({width, width}).fill_(0.01), true});
  }
  auto losses = [](const TensorMap& tensors, const Batch& batch) -> LossValues {
    at::Tensor x = batch[0];
    for (const auto& [name, tensor] : tensors) x = at::linear(x, tensor);
    return x.sum(-1);
  };
  MonitorOptions options;
  options.on_failure = ptqwatch::OnFailure::kError;
  options.schedule.every = every;
  options.quantizers = {{.method = ptqwatch::QuantizationMethod::kRtn}};
  // Snapshots are measured while the clock stands; a cheap measurement keeps the benchmark short.
  options.curvature.enabled = every > 1;
  auto monitor = Monitor::Create(
      ptqwatch::MakeFunctionSubject(
          {.live = std::move(live), .losses = losses, .probe = {{at::ones({2, width})}}}),
      options);
  if (!monitor.ok()) {
    std::fprintf(stderr, "%s\n", monitor.status().ToString().c_str());
    std::abort();
  }
  return *std::move(monitor);
}

void OnStepNothingDue(benchmark::State& state) {
  auto monitor = Make(32, 8, 1'000'000'000);
  int64_t step = 0;
  monitor->OnStep({.step = ++step, .learning_rate = 1e-2});
  const int64_t before = allocations;
  for (auto _ : state) {
    ++step;
    monitor->OnStep({.step = step,
                     .learning_rate = 1e-2 * static_cast<double>(1'000'000'000 - step),
                     .tokens = step * 512,
                     .loss = 2.0});
  }
  state.counters["allocations"] = static_cast<double>(allocations - before);
}
BENCHMARK(OnStepNothingDue);

void OnStepSnapshot(benchmark::State& state) {
  const int64_t width = state.range(0);
  const int64_t layers = 4;
  auto monitor = Make(width, layers, 1);
  int64_t step = 0;
  for (auto _ : state) {
    state.PauseTiming();
    if (step > 0) monitor->Finish(std::chrono::minutes(1)).IgnoreError();
    ++step;
    state.ResumeTiming();
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
  }
  state.SetBytesProcessed(state.iterations() * width * width * layers * 4);
}
BENCHMARK(OnStepSnapshot)->Arg(32)->Arg(256)->Arg(1024)->Iterations(20);

}  // namespace

BENCHMARK_MAIN();
