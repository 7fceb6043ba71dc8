#ifndef PTQWATCH_TESTS_UNIT_CAPTURE_CAPTURE_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_CAPTURE_CAPTURE_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/rand.h"
#include "capture/activation_capture.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::internal {

inline at::Tensor Random(std::vector<int64_t> sizes, uint64_t seed) {
  return at::rand(sizes, at::make_generator<at::CPUGeneratorImpl>(seed)) - 0.5;
}

/// A replica of `parameters` under `losses`, on two batches of random inputs.
struct Fixture {
  using Losses = std::function<LossValues(const TensorMap&, const Batch&)>;

  Fixture(std::vector<NamedTensor> parameters, Losses losses,
          std::vector<int64_t> input_sizes = {3, 4, 6})
      : Fixture(std::vector<Batch>{{Random(input_sizes, 1)}, {Random(input_sizes, 2)}},
                std::move(parameters), std::move(losses)) {}

  Fixture(std::vector<Batch> inputs, std::vector<NamedTensor> parameters, Losses losses)
      : batches(std::move(inputs)),
        subject(MakeFunctionSubject(
            {.live = parameters, .losses = std::move(losses), .probe = batches})) {
    auto created = Replica::Create(subject.get(), *MakeTensorTable(parameters), {&batches[0]});
    EXPECT_TRUE(created.ok()) << created.status();
    if (created.ok()) replica = *std::move(created);
  }

  CapturePlan Plan(LayerSelection selection = {.output_head = true},
                   int64_t max_gram_bytes = int64_t{1} << 30) {
    auto plan = PlanCapture(*replica, batches, selection, max_gram_bytes);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : CapturePlan();
  }

  /// All of the plan.
  std::vector<GramStatistics> Grams(const CapturePlan& plan) {
    std::vector<int> all(plan.gram_inputs.size());
    std::iota(all.begin(), all.end(), 0);
    ExecutionContext context;
    auto grams = CaptureGrams(*replica, plan, all, batches, backend, context);
    EXPECT_TRUE(grams.ok()) << grams.status();
    if (!grams.ok()) return std::vector<GramStatistics>(all.size());
    std::vector<GramStatistics> statistics;
    for (const auto& gram : grams->grams) statistics.push_back(HostBackend::StatisticsOf(*gram));
    return statistics;
  }

  std::vector<Batch> batches;
  std::unique_ptr<Subject> subject;
  std::unique_ptr<Replica> replica;
  HostBackend backend;
};

/// Sum of x x^T over the rows of all tensors, in float64.
inline at::Tensor NaiveGram(const std::vector<at::Tensor>& inputs) {
  at::Tensor sum;
  for (const at::Tensor& x : inputs) {
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).to(at::kDouble);
    const at::Tensor gram = at::mm(rows.t(), rows);
    sum = sum.defined() ? sum + gram : gram;
  }
  return sum;
}

inline void ExpectGram(const GramStatistics& statistics, const at::Tensor& expected) {
  ASSERT_EQ(static_cast<int64_t>(statistics.sum.size()), expected.numel());
  const at::Tensor flat = expected.contiguous();
  const double* values = flat.const_data_ptr<double>();
  const double scale = flat.abs().max().item<double>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    ASSERT_NEAR(statistics.sum[static_cast<size_t>(i)], values[i], 1e-5 * scale) << i;
  }
}

inline std::map<std::string, std::string> Reasons(const CapturePlan& plan) {
  std::map<std::string, std::string> reasons;
  for (const SkippedLayer& skipped : plan.skipped) reasons[skipped.name] = skipped.reason;
  return reasons;
}

/// Expects that the plan has one layer, "w", as [outputs, inputs], with the Gram of `rows`.
inline void ExpectOnly(Fixture& fixture, int64_t outputs, int64_t inputs, bool transposed,
                       const std::vector<at::Tensor>& rows) {
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 1u) << ::testing::PrintToString(Reasons(plan));
  EXPECT_EQ(plan.layers[0].name, "w");
  EXPECT_EQ(plan.layers[0].outputs, outputs);
  EXPECT_EQ(plan.layers[0].inputs, inputs);
  EXPECT_EQ(plan.layers[0].transposed, transposed);
  const GramStatistics gram = fixture.Grams(plan)[0];
  int64_t tokens = 0;
  for (const at::Tensor& x : rows) tokens += x.numel() / inputs;
  EXPECT_EQ(gram.tokens, tokens);
  ExpectGram(gram, NaiveGram(rows));
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TESTS_UNIT_CAPTURE_CAPTURE_FIXTURE_H_
