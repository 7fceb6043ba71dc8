// What ranks cost. RankSnapshot: CPU time of a snapshot of char_gpt's model on one rank (range 1)
// of several (range 0); a run has the pace of its slowest rank. Digest: the digests of the
// parameters in every report, beside Copy, a copy of the same bytes.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/zeros.h"
#include "char_model.h"
#include "probes/probe_suite.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/module_subject.h"
#include "snapshot/parameter_digest.h"

namespace ptqwatch::benchmarks {
namespace {

template <typename Value>
Value ValueOrAbort(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::abort();
}

using Model = std::shared_ptr<examples::CharModel>;

void RankSnapshot(benchmark::State& state) {
  at::set_num_threads(1);
  const examples::ModelConfig config = {
      .vocabulary = 96, .width = 32, .layers = 2, .heads = 2, .length = 32};
  const auto make = [=] { return examples::MakeGpt(config); };
  const Model model = make();
  std::vector<Batch> probe;
  for (int i = 0; i < 8; ++i) {
    probe.push_back({at::randint(config.vocabulary, {4, model->inputs()}, at::kLong),
                     at::randint(config.vocabulary, {4, config.length}, at::kLong)});
  }
  const auto subject = MakeModuleSubject<Model>(
      model, {.replica = make,
              .losses = [](const Model& net, const Batch& batch) -> LossValues {
                return net->TokenLosses(batch[0], batch[1]);
              },
              .probe = probe});
  MonitorOptions options;
  options.averaging.window = 2;
  options.ranks = state.range(0);
  options.rank = state.range(1);
  const auto suite = ValueOrAbort(internal::ProbeSuite::Create(
      ValueOrAbort(internal::ModelSession::Open(*subject, internal::SessionOptions(options))),
      options));
  internal::ProbeState kept;
  internal::SnapshotPlace place;
  const auto measure = [&] {
    place.step = ++place.sequence;
    kept = *ValueOrAbort(suite->Measure(place, kept)).next;
  };
  measure();  // averages begin with the second snapshot
  for (auto _ : state) measure();
}
BENCHMARK(RankSnapshot)
    ->Args({1, 0})
    ->Args({2, 0})
    ->Args({2, 1})
    ->Args({4, 0})
    ->Args({4, 1})
    ->Args({4, 2})
    ->Args({4, 3})
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

constexpr int64_t kSide = 2048;
constexpr int64_t kMatrices = 16;  // 256 MiB

// With an argument other than 0, also a digest of each parameter.
void Digest(benchmark::State& state) {
  std::vector<NamedTensor> live;
  for (int64_t i = 0; i < kMatrices; ++i) {
    live.push_back({"layer" + std::to_string(i), at::zeros({kSide, kSide}).fill_(0.01), true});
  }
  const Batch batch = {at::ones({1})};
  const auto subject =
      MakeFunctionSubject({.live = live,
                           .losses = [](const TensorMap& tensors, const Batch& b) -> LossValues {
                             at::Tensor sum = b[0];
                             for (const auto& [name, tensor] : tensors) sum = sum + tensor.sum();
                             return sum;
                           },
                           .probe = {batch}});
  const auto replica = ValueOrAbort(internal::Replica::Create(
      subject.get(), ValueOrAbort(internal::MakeTensorTable(subject->LiveTensors())), {&batch}));
  for (auto _ : state) {
    std::vector<ParameterDigest> each;
    benchmark::DoNotOptimize(ValueOrAbort(
        internal::DigestOfParameters(*replica, {}, state.range(0) != 0 ? &each : nullptr)));
  }
  state.SetBytesProcessed(state.iterations() * kMatrices * kSide * kSide * 4);
}
BENCHMARK(Digest)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void Copy(benchmark::State& state) {
  const at::Tensor from = at::ones({kMatrices, kSide, kSide});
  const at::Tensor to = at::zeros({kMatrices, kSide, kSide});
  for (auto _ : state) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(from.nbytes()));
}
BENCHMARK(Copy)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ptqwatch::benchmarks

BENCHMARK_MAIN();
