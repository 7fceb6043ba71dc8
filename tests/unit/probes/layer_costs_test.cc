#include "probes/layer_costs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "capture/device_backend.h"
#include "support/fake_clock.h"
#include "support/host_device.h"

namespace ptqwatch::internal {
namespace layer_costs_test {

using testing::FakeClock;

class FakeGram final : public LayerGram {
 public:
  int64_t tokens() const override { return 1; }
  int64_t skipped_rows() const override { return 0; }
};

// A device that takes a microsecond for each row that it adds, and a millisecond for each task.
class FakeBackend final : public QuantizeBackend {
 public:
  explicit FakeBackend(FakeClock& clock) : clock_(clock) {}

  at::Device device() const override { return at::Device(at::kCPU); }
  int64_t weights_together() const override { return 0; }
  absl::StatusOr<std::unique_ptr<GramSum>> Sum(int64_t) override {
    return std::make_unique<FakeSum>(*this);
  }
  void Quantize(absl::Span<const Task> tasks, OnDone done, const ExecutionContext&) override {
    queued_ += std::chrono::milliseconds(std::ssize(tasks));
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
      backend_.queued_ += std::chrono::microseconds(input.tensor.size(0));
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<LayerGram>> Take(const ExecutionContext&) override {
      return std::make_unique<FakeGram>();
    }

   private:
    FakeBackend& backend_;
  };

  FakeClock& clock_;
  // Work that takes its time when it is waited for. An earlier user left an hour of it.
  std::chrono::nanoseconds queued_ = std::chrono::hours(1);
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
  EXPECT_EQ(backend.rows(), 3 * (8 + 4 + 2));
}

// A kernel that is timed only once must have been loaded before.
TEST(LayerCosts, MeasureNoShapesBeyondThoseThatWereWarmed) {
  const CapturePlan plan = PlanOf({{12, 24}, {8, 40}});
  LayerSpecs specs(2, QuantizerSpec{.group_size = 16});
  BackendNeeds needs{.gram_inputs = plan.gram_inputs};
  for (const CoveredLayer& layer : plan.layers) {
    needs.layers.push_back({layer.outputs, layer.inputs, specs[0]});
  }
  auto compute = std::make_unique<testing::HostDevice>(int64_t{16} << 20);
  const testing::HostDevice& recorded = *compute;
  DeviceBackend backend(at::Device(at::kCPU), std::move(compute));
  const absl::Status warm = backend.Warm(needs);
  ASSERT_TRUE(warm.ok()) << warm;
  const auto warmed = recorded.shapes();
  const int64_t factors = recorded.factors_made();
  const absl::StatusOr<LayerCosts> costs = MeasureLayerCosts(
      plan, {specs}, 600, backend, [] {}, Clock::Real());
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(recorded.shapes(), warmed);
  EXPECT_EQ(factors, 2);
  EXPECT_EQ(recorded.factors_made(), 4);
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
