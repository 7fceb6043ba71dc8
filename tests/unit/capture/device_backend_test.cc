// The backend for a GPU, on a device of plain loops that works on the host's memory.
#include "capture/device_backend.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/ops/conv2d.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/square.h"
#include "capture/model_quantizer.h"
#include "capture_fixture.h"
#include "support/host_device.h"

namespace ptqwatch::internal {
namespace device_backend_test {

using ::testing::HasSubstr;

constexpr int64_t kArena = int64_t{4} << 20;
const at::Device kHost(at::kCPU);

struct Outcome {
  std::map<std::pair<size_t, size_t>, QuantizedMatrix> results;
  std::map<std::pair<size_t, size_t>, std::pair<int64_t, int64_t>> rows;  // tokens, skipped
  std::vector<absl::Status> statuses;
};

Outcome QuantizeWith(Fixture& fixture, const CapturePlan& plan,
                     const std::vector<QuantizerSpec>& specs, CalibrationMode mode,
                     QuantizeBackend& backend) {
  std::vector<LayerSpecs> quantizers;
  for (const QuantizerSpec& spec : specs) quantizers.emplace_back(plan.layers.size(), spec);
  Outcome outcome;
  const QuantizationRun run =
      ModelQuantizer(*fixture.replica, plan, fixture.batches, backend,
                     {.mode = mode, .max_gram_bytes = int64_t{1} << 30, .stored_sizes = true})
          .Run(quantizers,
               [&](size_t quantizer, size_t layer, const LayerGram* gram, QuantizedMatrix result) {
                 outcome.rows[{quantizer, layer}] = {gram->tokens(), gram->skipped_rows()};
                 outcome.results[{quantizer, layer}] = std::move(result);
               },
               {});
  for (const auto& quantizer : run.quantizers) outcome.statuses.push_back(quantizer.status);
  return outcome;
}

void ExpectClose(std::optional<double> a, std::optional<double> b, double tolerance) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (!a) return;
  EXPECT_NEAR(*a, *b, tolerance * std::abs(*a) + 1e-12);
}

// One code of a small layer is more than the 0.3 % that may differ.
void ExpectSameWeights(const at::Tensor& host, const at::Tensor& device, const std::string& what) {
  ASSERT_EQ(host.defined(), device.defined()) << what;
  if (!host.defined()) return;
  const at::Tensor apart = (host - device).abs() > 1e-5 * host.abs().max();
  EXPECT_LE(apart.sum().item<int64_t>(), std::max<int64_t>(1, host.numel() * 3 / 1000)) << what;
}

void ExpectSame(Outcome& host, Outcome& device, const CapturePlan& plan) {
  ASSERT_EQ(host.results.size(), device.results.size());
  EXPECT_EQ(host.rows, device.rows);
  for (auto& [key, expected] : host.results) {
    QuantizedMatrix& actual = device.results.at(key);
    const CoveredLayer& layer = plan.layers[key.second];
    const std::string what = "quantizer " + std::to_string(key.first) + ", " + layer.name;
    EXPECT_EQ(expected.weight.status, actual.weight.status) << what;
    EXPECT_EQ(expected.weight.dead_columns, actual.weight.dead_columns) << what;
    ExpectClose(expected.weight.loss, actual.weight.loss, 1e-3);
    ExpectClose(expected.weight.rtn_loss, actual.weight.rtn_loss, 1e-3);
    ExpectClose(expected.weight.output_energy, actual.weight.output_energy, 1e-3);
    ExpectClose(expected.squared_displacement, actual.squared_displacement, 2e-2);
    ASSERT_EQ(expected.stored.has_value(), actual.stored.has_value()) << what;
    if (expected.stored) {
      EXPECT_EQ(expected.stored->codes, actual.stored->codes) << what;
      EXPECT_NEAR(expected.stored->EntropyBits(), actual.stored->EntropyBits(), 0.01) << what;
      EXPECT_EQ(expected.stored->other_bytes, actual.stored->other_bytes) << what;
    }
    ExpectSameWeights(expected.Take(layer.outputs, layer.inputs),
                      actual.Take(layer.outputs, layer.inputs), what);
  }
}

std::vector<QuantizerSpec> AllMethods() {
  std::vector<QuantizerSpec> specs(13, QuantizerSpec{.group_size = 16, .min_tokens_ratio = 0});
  specs[0].method = QuantizationMethod::kRtn;
  specs[1].bits = 3;
  specs[2].method = QuantizationMethod::kAwq;
  specs[3].method = QuantizationMethod::kNf4;
  specs[4].method = QuantizationMethod::kLlmInt8;
  specs[4].bits = 8;
  specs[5].clip = ClipSearch::kMse;
  specs[6].format = QuantizationFormat::kNvfp4;
  specs[7].rotation = 16;
  specs[8].method = QuantizationMethod::kAwq;
  specs[8].clip = ClipSearch::kMse;  // by the host
  specs[9].bits = 6;
  specs[9].narrow_range = true;
  specs[9].min_scale = 0.02;
  specs[10].narrow_range = true;
  specs[10].clip = ClipSearch::kStd;  // by the host
  specs[10].clip_value = 2;
  specs[11].method = QuantizationMethod::kRtn;
  specs[11].clip = ClipSearch::kPercentile;  // by the host
  specs[11].clip_value = 95;
  specs[11].round_scale_last = true;
  specs[12].narrow_range = true;
  specs[12].clip = ClipSearch::kMse;  // by the host
  return specs;
}

// Two layers share their inputs, one is stored the other way round, three have the same shape.
Fixture MakeNet() {
  return Fixture({{"q", Random({24, 32}, 3)},
                  {"k", Random({24, 32}, 4)},
                  {"up", Random({24, 40}, 5)},
                  {"down", Random({24, 40}, 6)}},
                 [](const TensorMap& w, const Batch& b) -> LossValues {
                   const at::Tensor x = b[0];
                   const at::Tensor mixed =
                       at::relu(at::linear(x, w.at("q")) + at::linear(x, w.at("k")));
                   const at::Tensor wide = at::relu(at::matmul(mixed, w.at("up")));
                   return at::linear(wide, w.at("down")).square().sum(-1);
                 },
                 {6, 50, 32});
}

TEST(DeviceBackend, GivesWhatTheHostGives) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u);
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    HostBackend host;
    auto compute = std::make_unique<testing::HostDevice>(kArena);
    const Arena& arena = compute->arena();
    DeviceBackend device(kHost, std::move(compute));
    Outcome expected = QuantizeWith(fixture, plan, AllMethods(), mode, host);
    Outcome actual = QuantizeWith(fixture, plan, AllMethods(), mode, device);
    for (const absl::Status& status : actual.statuses) EXPECT_TRUE(status.ok()) << status;
    ExpectSame(expected, actual, plan);
    EXPECT_EQ(arena.used(), 0);
  }
}

TEST(DeviceBackend, ReadsConvolutions) {
  Fixture fixture({{"c", Random({8, 3, 3, 3}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::conv2d(b[0], w.at("c"), {}, 1, 1).square().sum({1, 2, 3});
                  },
                  {4, 3, 12, 12});
  const CapturePlan plan = fixture.Plan();
  HostBackend host;
  DeviceBackend device(kHost, std::make_unique<testing::HostDevice>(kArena));
  const std::vector<QuantizerSpec> specs = {{.group_size = -1, .min_tokens_ratio = 0}};
  Outcome expected = QuantizeWith(fixture, plan, specs, CalibrationMode::kOneShot, host);
  Outcome actual = QuantizeWith(fixture, plan, specs, CalibrationMode::kOneShot, device);
  ExpectSame(expected, actual, plan);
}

TEST(DeviceBackend, TakesHalfPrecisionAsItIsAndLeavesRowsOutThatAreNotFinite) {
  DeviceBackend device(kHost, std::make_unique<testing::HostDevice>(kArena));
  HostBackend host;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    at::Tensor x = Random({3, 20, 300}, 8).to(dtype);
    x[1][4][7] = std::nan("");
    const LayerInput input{.tensor = x, .form = {}};
    const auto gram_of = [&](QuantizeBackend& backend) {
      auto sum = *backend.Sum(300);
      EXPECT_TRUE(sum->Add(input, {}).ok());
      return *sum->Take({});
    };
    const auto expected = gram_of(host);
    const auto gram = gram_of(device);
    // The number of tokens is known once a layer is quantized.
    const at::Tensor weight = Random({4, 300}, 9);
    device.Quantize({{.weight = weight, .gram = gram.get(), .spec = {.min_tokens_ratio = 0}}},
                    [&](size_t, absl::StatusOr<QuantizedMatrix> result) {
                      ASSERT_TRUE(result.ok()) << result.status();
                      EXPECT_EQ(gram->tokens(), 59);
                      EXPECT_EQ(gram->skipped_rows(), 1);
                    },
                    {});
    EXPECT_EQ(expected->tokens(), 59) << dtype;
  }
}

TEST(DeviceBackend, FailuresGiveTheArenaBack) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  const std::vector<QuantizerSpec> specs = {{.group_size = 16, .min_tokens_ratio = 0}};
  for (const int64_t bytes :
       {int64_t{1000}, GramBytes(32) + GramBytes(24) + 20000, int64_t{90000}}) {
    auto compute = std::make_unique<testing::HostDevice>(bytes);
    const Arena& arena = compute->arena();
    DeviceBackend device(kHost, std::move(compute));
    const Outcome outcome = QuantizeWith(fixture, plan, specs, CalibrationMode::kOneShot, device);
    EXPECT_EQ(outcome.statuses[0].code(), absl::StatusCode::kResourceExhausted) << bytes;
    EXPECT_EQ(arena.used(), 0) << bytes;
  }
  for (int calls = 0; calls < 60; calls += 13) {
    auto compute = std::make_unique<testing::HostDevice>(kArena);
    testing::HostDevice& faulty = *compute;
    DeviceBackend device(kHost, std::move(compute));
    faulty.FailAfter(calls, absl::InternalError("broken"));
    EXPECT_THAT(std::string(QuantizeWith(fixture, plan, specs, CalibrationMode::kOneShot, device)
                                .statuses[0]
                                .message()),
                HasSubstr("broken"));
    EXPECT_EQ(faulty.arena().used(), 0);
    faulty.FailAfter(0, absl::OkStatus());
    EXPECT_TRUE(
        QuantizeWith(fixture, plan, specs, CalibrationMode::kOneShot, device).statuses[0].ok());
  }
}

TEST(DeviceBackend, AnArenaOfTheBytesAskedForIsEnough) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  testing::HostDevice asked(0);
  BackendNeeds needs{.gram_inputs = plan.gram_inputs};
  for (const QuantizerSpec& spec : AllMethods()) {
    for (const CoveredLayer& layer : plan.layers) {
      needs.layers.push_back({layer.outputs, layer.inputs, spec});
    }
  }
  const absl::StatusOr<int64_t> bytes = DeviceArenaBytes(asked, needs);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  DeviceBackend device(kHost, std::make_unique<testing::HostDevice>(*bytes));
  const Outcome outcome =
      QuantizeWith(fixture, plan, AllMethods(), CalibrationMode::kOneShot, device);
  for (const absl::Status& status : outcome.statuses) EXPECT_TRUE(status.ok()) << status;
}

// On a GPU, code for a new shape is loaded at its first use, which may hold training up.
TEST(DeviceBackend, AfterWarmALayerBringsNoNewShapes) {
  const std::vector<QuantizerSpec> specs = AllMethods();
  BackendNeeds needs{.gram_inputs = {24, 264, 24}};
  for (const QuantizerSpec& spec : specs) {
    for (int64_t inputs : needs.gram_inputs) needs.layers.push_back({12, inputs, spec});
  }
  testing::HostDevice asked(0);
  const absl::StatusOr<int64_t> bytes = DeviceArenaBytes(asked, needs);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto compute = std::make_unique<testing::HostDevice>(*bytes);
  const testing::HostDevice& recorded = *compute;
  DeviceBackend device(kHost, std::move(compute));
  const absl::Status warm = device.Warm(needs);
  ASSERT_TRUE(warm.ok()) << warm;
  const auto before = recorded.shapes();
  EXPECT_THAT(before, ::testing::SizeIs(::testing::Gt(10)));

  for (int64_t inputs : {24, 264}) {
    const at::Tensor rows = at::randn({100, inputs});
    auto sum = device.Sum(inputs);
    ASSERT_TRUE(sum.ok()) << sum.status();
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      ASSERT_TRUE((*sum)->Add({rows.to(dtype), {}}, {}).ok());
    }
    const auto gram = (*sum)->Take({});
    ASSERT_TRUE(gram.ok()) << gram.status();
    const at::Tensor weight = at::randn({12, inputs});
    for (const QuantizerSpec& spec : specs) {
      const QuantizeBackend::Task task{weight, gram->get(), spec};
      device.Quantize({&task, 1},
                      [](size_t, absl::StatusOr<QuantizedMatrix> result) {
                        EXPECT_TRUE(result.ok()) << result.status();
                      },
                      {});
    }
  }
  EXPECT_EQ(recorded.shapes(), before);
}

TEST(DeviceBackend, WarmRunsAMethodThatNeedsMoreTokens) {
  const QuantizerSpec spec{.group_size = 16, .min_tokens_ratio = 1000};
  auto compute = std::make_unique<testing::HostDevice>(kArena);
  const testing::HostDevice& recorded = *compute;
  DeviceBackend device(kHost, std::move(compute));
  const absl::Status warm = device.Warm({.gram_inputs = {24}, .layers = {{12, 24, spec}}});
  ASSERT_TRUE(warm.ok()) << warm;
  EXPECT_EQ(recorded.factors_made(), 1);
}

}  // namespace device_backend_test
}  // namespace ptqwatch::internal
