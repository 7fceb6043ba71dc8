#ifndef PTQWATCH_TESTS_UNIT_CURVATURE_TANH_NET_H_
#define PTQWATCH_TESTS_UNIT_CURVATURE_TANH_NET_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "ptqwatch/function_subject.h"
#include "support/probe_run.h"

namespace ptqwatch::testing {

// Numbers that look random and need no generator.
inline at::Tensor Waves(std::vector<int64_t> sizes, double scale, int64_t phase) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return ((at::arange(count, at::kDouble) + phase) * 12.9898)
      .sin()
      .mul(scale)
      .view(sizes)
      .to(at::kFloat);
}

/// A subject of 16 -> 24 -> 24 -> 8 with a bias at the first layer, 3 batches of 100, and what a
/// test of its measurement needs.
struct TanhNet {
  TanhNet() {
    live = {{"in.weight", Waves({24, 16}, 0.4, 1), true},
            {"in.bias", Waves({24}, 0.1, 2), true},
            {"mid.weight", Waves({24, 24}, 0.4, 3), true},
            {"out.weight", Waves({8, 24}, 0.4, 4), true}};
    losses = [](const TensorMap& p, const Batch& b) -> LossValues {
      const at::Tensor h = at::linear(b[0], p.at("in.weight"), p.at("in.bias")).tanh();
      const at::Tensor logits =
          at::linear(at::linear(h, p.at("mid.weight")).tanh(), p.at("out.weight"));
      return at::cross_entropy_loss(logits, b[1], {}, at::Reduction::None);
    };
    for (int64_t i = 0; i < 3; ++i) {
      batches.push_back({Waves({100, 16}, 2, 1000 * i), at::arange(100, at::kLong) % 8});
    }
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                          {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 8}};
  }
  std::unique_ptr<Subject> MakeSubject() const {
    return MakeFunctionSubject({.live = live, .losses = losses, .probe = batches});
  }
  absl::StatusOr<std::unique_ptr<internal::ProbeSuite>> Measure() {
    subject = MakeSubject();
    table = *internal::MakeTensorTable(subject->LiveTensors());
    auto suite = OpenProbes(*subject, options, engine);
    if (suite.ok()) Load(**suite);
    return suite;
  }
  void Load(internal::ProbeSuite& suite) const {
    internal::Snapshot snapshot;
    for (const internal::TensorEntry& entry : table.entries) {
      snapshot.tensors.push_back(entry.tensor);
    }
    suite.Load(snapshot);
  }
  static Report Run(internal::ProbeSuite& suite, internal::ProbeState* state = nullptr) {
    return MeasureReport(suite, state);
  }

  std::vector<NamedTensor> live;
  std::function<LossValues(const TensorMap&, const Batch&)> losses;
  std::vector<Batch> batches;
  MonitorOptions options;
  CurvatureEngineOptions engine;
  std::unique_ptr<Subject> subject;
  internal::TensorTable table;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_CURVATURE_TANH_NET_H_
