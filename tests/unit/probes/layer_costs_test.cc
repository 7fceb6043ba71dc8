#include "probes/layer_costs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace layer_costs_test {

using testing::FakeClock;

class FakeGram final : public LayerGram {
 public:
  int64_t tokens() const override { return 1; }
  int64_t skipped_rows() const override { return 0; }
};

// A device that takes a microsecond for each row that it adds, and a millisecond for each task. Its
// first call of each kind takes an hour.
class FakeBackend final : public QuantizeBackend {
 public:
  explicit FakeBackend(FakeClock& clock) : clock_(clock) {}

  at::Device device() const override { return at::Device(at::kCPU); }
  int64_t weights_together() const override { return 0; }
  absl::StatusOr<std::unique_ptr<GramSum>> Sum(int64_t) override {
    return std::make_unique<FakeSum>(*this);
  }
  void Quantize(absl::Span<const Task> tasks, OnDone done, const ExecutionContext&) override {
    Take(!std::exchange(quantized_, true), std::chrono::milliseconds(std::ssize(tasks)));
    for (size_t i = 0; i < tasks.size(); ++i) {
      rows_ += tasks[i].weight.size(0);
      if (failing_) {
        done(i, absl::InternalError("broken"));
      } else {
        done(i, QuantizedMatrix{});
      }
    }
  }
  void Drain() { clock_.Advance(std::exchange(queued_, {})); }
  void Fail() { failing_ = true; }
  int64_t rows() const { return rows_; }

 private:
  class FakeSum final : public GramSum {
   public:
    explicit FakeSum(FakeBackend& backend) : backend_(backend) {}
    absl::Status Add(const LayerInput& input, const ExecutionContext&) override {
      backend_.Take(!std::exchange(backend_.added_, true),
                    std::chrono::microseconds(input.tensor.size(0)));
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<LayerGram>> Take(const ExecutionContext&) override {
      return std::make_unique<FakeGram>();
    }

   private:
    FakeBackend& backend_;
  };

  // The work is queued; it takes time when it is waited for.
  void Take(bool first, std::chrono::nanoseconds time) {
    queued_ += first ? std::chrono::hours(1) : time;
  }

  FakeClock& clock_;
  std::chrono::nanoseconds queued_{0};
  bool added_ = false;
  bool quantized_ = false;
  bool failing_ = false;
  int64_t rows_ = 0;
};

CapturePlan PlanOf(const std::vector<std::pair<int64_t, int64_t>>& shapes) {
  CapturePlan plan;
  for (const auto& [outputs, inputs] : shapes) {
    CoveredLayer layer;
    layer.outputs = outputs;
    layer.inputs = inputs;
    plan.layers.push_back(layer);
    plan.gram_inputs.push_back(inputs);
  }
  return plan;
}

TEST(LayerCosts, AreThoseOfTheBackend) {
  FakeClock clock;
  FakeBackend backend(clock);
  // Four layers in three shapes.
  const CapturePlan plan = PlanOf({{8, 16}, {8, 16}, {4, 16}, {2, 32}});
  const std::vector<LayerSpecs> quantizers(3, LayerSpecs(4));
  const auto drain = [&] { backend.Drain(); };
  const absl::StatusOr<LayerCosts> costs =
      MeasureLayerCosts(plan, quantizers, 100'000, backend, drain, &clock);
  ASSERT_TRUE(costs.ok()) << costs.status();
  // Each Gram gets 100,000 rows, however many were added in the measurement.
  EXPECT_NEAR(costs->gram_batch, 4 * 0.1, 1e-9);
  EXPECT_NEAR(costs->quantize, 4 * 3 * 1e-3, 1e-9);
  EXPECT_EQ(backend.rows(), 2 * 3 * (8 + 4 + 2));
}

TEST(LayerCosts, HandOnWhatTheBackendRefuses) {
  FakeClock clock;
  FakeBackend backend(clock);
  backend.Fail();
  const absl::StatusOr<LayerCosts> costs = MeasureLayerCosts(
      PlanOf({{8, 16}}), {LayerSpecs(1)}, 10, backend, [] {}, &clock);
  EXPECT_EQ(costs.status(), absl::InternalError("broken"));
}

TEST(LayerCosts, AreCountedByLayerAndQuantizer) {
  const LayerCosts one = CountLayerCosts(PlanOf({{8, 16}}), {LayerSpecs(1)}, 10);
  EXPECT_GT(one.quantize, 0);
  const LayerCosts four =
      CountLayerCosts(PlanOf({{8, 16}, {8, 16}}), {LayerSpecs(2), LayerSpecs(2)}, 30);
  EXPECT_DOUBLE_EQ(four.quantize, 4 * one.quantize);
  EXPECT_DOUBLE_EQ(four.gram_batch, 2 * 3 * one.gram_batch);
}

}  // namespace layer_costs_test
}  // namespace ptqwatch::internal
