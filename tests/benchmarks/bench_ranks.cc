// The cost of ranks. RankSnapshot: CPU time of a snapshot of char_gpt's model on one rank (range 1)
// of several (range 0), and the products of its parts; a run has the pace of its slowest rank.
// Digest: the digests of the parameters in every report, beside Copy, a copy of the same bytes.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Context.h"
#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "char_model.h"
#include "probes/probe_suite.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/module_subject.h"
#include "snapshot/parameter_digest.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::benchmarks {
namespace {

template <typename Value>
Value ValueOrAbort(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::abort();
}

using Model = std::shared_ptr<examples::CharModel>;

constexpr examples::ModelConfig kConfig = {.vocabulary = 96};

// The model and the data of char_gpt with its default flags, but characters of a Markov chain.
class Trained {
 public:
  static const Trained& Get() {
    static const Trained trained;
    return trained;
  }

  Model model = examples::MakeGpt(kConfig);
  OptimizerView optimizer{.kind = OptimizerKind::kAdamW};
  std::vector<Batch> probe, calibration;

 private:
  Trained() {
    at::manual_seed(1);
    chain_ = at::randn({kConfig.vocabulary, kConfig.vocabulary}).mul(2).softmax(1);
    Train(500);
    for (int i = 0; i < 32; ++i) probe.push_back(Draw(32));
    for (int i = 0; i < 4; ++i) calibration.push_back(Draw(32));
  }

  Batch Draw(int64_t sequences) const {
    std::vector<at::Tensor> characters = {at::randint(kConfig.vocabulary, {sequences}, at::kLong)};
    while (std::ssize(characters) <= kConfig.length) {
      characters.push_back(chain_.index_select(0, characters.back()).multinomial(1).squeeze(1));
    }
    const at::Tensor all = at::stack(characters, 1);
    return {all.narrow(1, 0, kConfig.length).clone(), all.narrow(1, 1, kConfig.length).clone()};
  }

  // AdamW, so that Hessian and second moments are those of a training run.
  void Train(int64_t steps) {
    std::vector<at::Tensor> weights, means;
    for (const auto& parameter : model->named_parameters()) {
      weights.push_back(parameter.value());
      means.push_back(at::zeros(parameter.value().sizes()));
      optimizer.parameters.push_back({.name = parameter.key(),
                                      .learning_rate = 1e-2,
                                      .steps = steps,
                                      .second_moment = at::zeros(parameter.value().sizes())});
    }
    for (int64_t step = 1; step <= steps; ++step) {
      model->zero_grad();
      const Batch batch = Draw(8);
      model->TokenLosses(batch[0], batch[1]).mean().backward();
      const at::NoGradGuard no_grad;
      const auto corrected = [step](const at::Tensor& mean, double beta) {
        return mean / (1 - std::pow(beta, static_cast<double>(step)));
      };
      for (size_t i = 0; i < weights.size(); ++i) {
        const at::Tensor gradient = weights[i].grad();
        const at::Tensor moment = optimizer.parameters[i].second_moment;
        means[i].mul_(optimizer.beta1).add_(gradient, 1 - optimizer.beta1);
        moment.mul_(optimizer.beta2).addcmul_(gradient, gradient, 1 - optimizer.beta2);
        weights[i].sub_(corrected(means[i], optimizer.beta1) /
                            (corrected(moment, optimizer.beta2).sqrt() + optimizer.epsilon),
                        optimizer.parameters[i].learning_rate);
      }
    }
  }

  at::Tensor chain_;  // [from, to]
};

void RankSnapshot(benchmark::State& state) {
  at::set_num_threads(1);
  const Trained& trained = Trained::Get();
  const auto subject = MakeModuleSubject<Model>(
      trained.model, {.replica = [] { return examples::MakeGpt(kConfig); },
                      .losses = [](const Model& net, const Batch& batch) -> LossValues {
                        return net->TokenLosses(batch[0], batch[1]);
                      },
                      .probe = trained.probe,
                      .calibration = trained.calibration});
  MonitorOptions options;
  options.ranks = state.range(0);
  options.rank = state.range(1);
  const auto suite = ValueOrAbort(internal::ProbeSuite::Create(
      ValueOrAbort(internal::ModelSession::Open(*subject, internal::SessionOptions(options))),
      options));
  internal::Snapshot snapshot;
  snapshot.optimizer.view = trained.optimizer;
  for (const internal::TensorEntry& entry : suite->session().live().entries) {
    snapshot.tensors.push_back(entry.tensor.detach().clone());
  }
  suite->Load(snapshot);
  internal::ProbeState kept;
  internal::SnapshotPlace place;
  const auto measure = [&] {
    place.step = ++place.sequence;
    internal::Measured measured = ValueOrAbort(suite->Measure(place, kept));
    kept = *std::move(measured.next);
    const auto* found =
        internal::FindResult<internal::CurvatureResult>(absl::MakeSpan(measured.results));
    if (found != nullptr) {
      state.counters["products"] = static_cast<double>(found->report.hessian_products);
    }
  };
  // Small snapshots until averages and merges have theirs, and a whole one for the first search.
  place.plan = Plan{.probe_batches = 1, .calibration_batches = 1};
  for (int64_t i = 2; i < options.averaging.window; ++i) measure();
  place.plan.reset();
  measure();
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
    ->Iterations(2)
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
