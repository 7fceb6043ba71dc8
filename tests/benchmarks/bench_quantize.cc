// Speed of the quantization engine on one core. FLOP are counted as an ideal implementation needs
// them: n d^2 for Gram (one triangle), d^3 / 3 for the factor, and for quantize d^3 / 3 + m d^2
// (GPTQ) + 2 m d^2 (the two reported traces).

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "quantize/cholesky.h"

namespace {

using ptqwatch::ExecutionContext;
using ptqwatch::GramAccumulator;
using ptqwatch::GramStatistics;
using ptqwatch::MatrixView;

std::vector<float> Gaussian(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Neighbouring channels are correlated, and one in 128 is 30 times larger.
std::vector<float> Inputs(int64_t rows, int64_t cols) {
  std::vector<float> x = Gaussian(rows * cols, 1);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.data() + r * cols;
    for (int64_t c = 1; c < cols; ++c) row[c] = 0.8f * row[c - 1] + 0.6f * row[c];
    for (int64_t c = 0; c < cols; c += 128) row[c] *= 30;
  }
  return x;
}

GramStatistics Statistics(int64_t tokens, int64_t cols) {
  const std::vector<float> x = Inputs(tokens, cols);
  ExecutionContext context = ExecutionContext::Standalone();
  GramAccumulator gram(cols);
  gram.Add(context, {.data = x.data(), .rows = tokens, .cols = cols}).IgnoreError();
  return gram.Take();
}

void SetRate(benchmark::State& state, double flop) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flop * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Gram(benchmark::State& state) {
  const int64_t d = state.range(0);
  const int64_t n = state.range(1);
  const std::vector<float> x = Inputs(n, d);
  ExecutionContext context = ExecutionContext::Standalone();
  GramAccumulator gram(d);
  for (auto _ : state) {
    const absl::Status status = gram.Add(context, {.data = x.data(), .rows = n, .cols = d});
    if (!status.ok()) state.SkipWithError("Gram failed");
  }
  SetRate(state, static_cast<double>(n) * static_cast<double>(d * d));
}
BENCHMARK(BM_Gram)->Args({1024, 4096})->Args({2048, 4096})->Unit(benchmark::kMillisecond);

void BM_Factor(benchmark::State& state) {
  const int64_t d = state.range(0);
  const GramStatistics statistics = Statistics(4096, d);
  std::vector<int64_t> order(static_cast<size_t>(d));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<double> diagonal(static_cast<size_t>(d));
  for (int64_t i = 0; i < d; ++i) {
    diagonal[static_cast<size_t>(i)] = 1.01 * statistics.sum[static_cast<size_t>(i * d + i)];
  }
  ExecutionContext context = ExecutionContext::Standalone();
  for (auto _ : state) {
    auto factor = ptqwatch::internal::FactorizeUpper(context, {.values = statistics.sum.data(),
                                                               .size = d,
                                                               .order = order.data(),
                                                               .scale = 1,
                                                               .diagonal = diagonal.data()});
    if (!factor.ok()) state.SkipWithError("factorisation failed");
    benchmark::DoNotOptimize(factor);
  }
  SetRate(state, std::pow(static_cast<double>(d), 3) / 3);
}
BENCHMARK(BM_Factor)->Arg(1024)->Arg(2048)->Unit(benchmark::kMillisecond);

void BM_Quantize(benchmark::State& state) {
  const int64_t m = state.range(0);
  const int64_t d = state.range(1);
  const GramStatistics statistics = Statistics(4096, d);
  const std::vector<float> weight = Gaussian(m * d, 2);
  ExecutionContext context = ExecutionContext::Standalone();
  for (auto _ : state) {
    auto result =
        ptqwatch::Quantize(context, {.data = weight.data(), .rows = m, .cols = d}, &statistics, {});
    if (!result.ok() || result->status != ptqwatch::LayerStatus::kOk) {
      state.SkipWithError("quantization failed");
    }
    benchmark::DoNotOptimize(result);
  }
  const double columns = static_cast<double>(d);
  SetRate(state, std::pow(columns, 3) / 3 + 3 * static_cast<double>(m) * columns * columns);
}
BENCHMARK(BM_Quantize)->Args({1024, 1024})->Args({2048, 2048})->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
