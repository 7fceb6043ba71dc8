#include "capture/model_quantizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>

#include "ATen/ops/cat.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/tanh.h"
#include "ATen/ops/zeros.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace model_quantizer_test {

using ::testing::ElementsAre;

constexpr int64_t kNoLimit = int64_t{1} << 40;

QuantizerSpec Gptq(int bits = 3) {
  return {.method = QuantizationMethod::kGptq, .bits = bits, .group_size = -1};
}
QuantizerSpec Rtn(int bits = 3) {
  return {.method = QuantizationMethod::kRtn, .bits = bits, .group_size = -1};
}

/// A residual net of query and key on one input, a hidden weight used twice, and an [in, out]
/// weight between its two uses.
Fixture MakeNet(size_t batches = 3) {
  std::vector<Batch> inputs;
  for (size_t i = 0; i < batches; ++i) inputs.push_back({Random({4, 8, 6}, 20 + i)});
  return Fixture(std::move(inputs),
                 {{"q", Random({6, 6}, 3)},
                  {"k", Random({6, 6}, 4)},
                  {"twice", Random({6, 6}, 5)},
                  {"between", Random({6, 6}, 6)},
                  {"out", Random({2, 6}, 7)}},
                 [](const TensorMap& w, const Batch& b) -> LossValues {
                   at::Tensor x = at::relu(b[0]) + b[0] * 0.5;
                   const at::Tensor q = at::tanh(at::linear(x, w.at("q")) * 3);
                   const at::Tensor k = at::tanh(at::linear(x, w.at("k")) * 3);
                   x = x + q * k;
                   x = at::relu(at::linear(x, w.at("twice")) * 2);
                   x = at::relu(at::matmul(x, w.at("between")) * 2);
                   x = at::relu(at::linear(x, w.at("twice")) * 2);
                   return at::linear(x, w.at("out")).square().sum(-1);
                 });
}

/// Everything a ModelQuantizer gives.
struct Recorder {
  struct Layer {
    QuantizedWeight weight;
    std::vector<double> gram;
    int64_t tokens = -1;
  };
  std::map<std::pair<size_t, size_t>, Layer> layers;
  std::vector<absl::Status> done;
  std::vector<size_t> order;
  int captures = 0;
};

Recorder QuantizeAll(Fixture& fixture, const CapturePlan& plan, std::vector<QuantizerSpec> specs,
                     CalibrationMode mode, int64_t max_gram_bytes = kNoLimit) {
  std::vector<LayerSpecs> quantizers;
  for (const QuantizerSpec& spec : specs) quantizers.emplace_back(plan.layers.size(), spec);
  const ModelQuantizer quantizer(*fixture.replica, plan, fixture.batches, fixture.backend,
                                 {.mode = mode, .max_gram_bytes = max_gram_bytes});
  ExecutionContext context;
  Recorder recorder;
  const QuantizationRun run = quantizer.Run(
      quantizers,
      [&](size_t index, size_t layer, const LayerGram* gram, QuantizedMatrix result) {
        Recorder::Layer& kept = recorder.layers[{index, layer}];
        kept.weight = std::move(result.weight);
        if (gram != nullptr) {
          kept.gram = HostBackend::StatisticsOf(*gram).sum;
          kept.tokens = gram->tokens();
        }
        recorder.order.push_back(layer);
      },
      context);
  for (const QuantizationRun::Quantizer& outcome : run.quantizers) {
    recorder.done.push_back(outcome.status);
  }
  recorder.captures = run.captures;
  return recorder;
}

void ExpectSame(const Recorder& a, const Recorder& b) {
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (const auto& [key, layer] : a.layers) {
    const Recorder::Layer& other = b.layers.at(key);
    EXPECT_EQ(layer.gram, other.gram);
    EXPECT_EQ(layer.weight.codes, other.weight.codes);
    EXPECT_EQ(layer.weight.scale, other.weight.scale);
    EXPECT_EQ(layer.weight.dequantized, other.weight.dequantized);
    EXPECT_EQ(layer.weight.loss, other.weight.loss);
    EXPECT_EQ(layer.weight.rtn_loss, other.weight.rtn_loss);
    EXPECT_EQ(layer.weight.output_energy, other.weight.output_energy);
    EXPECT_EQ(layer.weight.dead_columns, other.weight.dead_columns);
  }
}

TEST(CapturePlan, OrdersStagesByTheLastUseOfAWeight) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 5u);  // q, k, twice, between, out: in order of first use
  std::vector<std::string> names;
  for (int gram : plan.stages) {
    for (const CoveredLayer& layer : plan.layers) {
      if (layer.gram == gram) names.push_back(layer.name);
    }
  }
  // The inputs of "twice" are known only once "between" is quantized.
  EXPECT_THAT(names, ElementsAre("q", "k", "between", "twice", "out"));
  EXPECT_EQ(plan.stages.size(), 4u);
}

TEST(CapturePlan, FillsPassesInOrderUpToTheLimit) {
  CapturePlan plan;
  plan.gram_inputs = {10, 10, 20, 5, 5};  // 800, 800, 3200, 200, 200 bytes
  const auto sizes = [&](int64_t limit) {
    std::vector<size_t> counts;
    int next = 0;
    for (const std::vector<int>& pass : plan.Passes(limit)) {
      counts.push_back(pass.size());
      for (int gram : pass) EXPECT_EQ(gram, next++);
    }
    EXPECT_EQ(next, 5);
    return counts;
  };
  EXPECT_THAT(sizes(kNoLimit), ElementsAre(5));
  EXPECT_THAT(sizes(5200), ElementsAre(5));
  EXPECT_THAT(sizes(5199), ElementsAre(4, 1));
  EXPECT_THAT(sizes(3200), ElementsAre(2, 1, 2));
  EXPECT_THAT(sizes(1600), ElementsAre(2, 1, 2));
  EXPECT_THAT(sizes(1), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_EQ(plan.GramBytesOf({0, 1, 2, 3, 4}), 5200);
}

TEST(CapturePlan, LeavesOutALayerWhoseGramAloneIsTooLarge) {
  Fixture fixture({{"wide", Random({3, 6}, 3)}, {"narrow", Random({2, 3}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::linear(at::linear(b[0], w.at("wide")), w.at("narrow")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan({.output_head = true}, GramBytes(6) - 1);
  ASSERT_EQ(plan.layers.size(), 1u);
  EXPECT_EQ(plan.layers[0].name, "narrow");
  EXPECT_THAT(Reasons(plan)["wide"], ::testing::HasSubstr("max_gram_bytes"));
  EXPECT_EQ(fixture.Plan({.output_head = true}, GramBytes(6)).layers.size(), 2u);
}

TEST(ModelQuantizer, GivesTheSameBitsWithinAnyMemory) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    const Recorder all = QuantizeAll(fixture, plan, {Rtn(), Gptq(), Gptq(4)}, mode);
    EXPECT_EQ(all.captures, 1);
    ASSERT_EQ(all.layers.size(), 15u);
    const Recorder two =
        QuantizeAll(fixture, plan, {Rtn(), Gptq(), Gptq(4)}, mode, 2 * GramBytes(6));
    EXPECT_EQ(two.captures, 2);
    ExpectSame(all, two);
    const Recorder one = QuantizeAll(fixture, plan, {Rtn(), Gptq(), Gptq(4)}, mode, GramBytes(6));
    EXPECT_EQ(one.captures, 4);
    ExpectSame(all, one);
  }
}

TEST(ModelQuantizer, TakesTheQuantizersOfALayerInTurnAndGivesTheBitsOfEachAlone) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  const std::vector<QuantizerSpec> specs = {Rtn(), Rtn(4), Gptq(), Gptq(4)};
  const Recorder together = QuantizeAll(fixture, plan, specs, CalibrationMode::kOneShot);
  std::vector<size_t> turns;
  for (size_t layer = 0; layer < 5; ++layer) turns.insert(turns.end(), specs.size(), layer);
  EXPECT_EQ(together.order, turns);
  Recorder apart;
  for (size_t i = 0; i < specs.size(); ++i) {
    Recorder one = QuantizeAll(fixture, plan, {specs[i]}, CalibrationMode::kOneShot);
    for (auto& [key, layer] : one.layers) apart.layers[{i, key.second}] = std::move(layer);
  }
  ExpectSame(together, apart);
}

TEST(ModelQuantizer, RestoresTheReplica) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    QuantizeAll(fixture, plan, {Gptq()}, mode);
    for (size_t i = 0; i < fixture.replica->table().entries.size(); ++i) {
      EXPECT_TRUE(fixture.replica->table().entries[i].tensor.equal(
          fixture.replica->loaded(static_cast<int>(i))));
    }
    EXPECT_TRUE(fixture.replica->Use({}).ok());
  }
}

/// The net of MakeNet by hand, with these weights; gives the inputs of each layer, by name.
std::map<std::string, std::vector<at::Tensor>> InputsByHand(
    const std::map<std::string, at::Tensor>& w, const std::vector<Batch>& batches) {
  std::map<std::string, std::vector<at::Tensor>> inputs;
  for (const Batch& b : batches) {
    at::Tensor x = at::relu(b[0]) + b[0] * 0.5;
    inputs["q"].push_back(x);
    inputs["k"].push_back(x);
    const at::Tensor q = at::tanh(at::linear(x, w.at("q")) * 3);
    const at::Tensor k = at::tanh(at::linear(x, w.at("k")) * 3);
    x = x + q * k;
    inputs["twice"].push_back(x);
    x = at::relu(at::linear(x, w.at("twice")) * 2);
    inputs["between"].push_back(x);
    x = at::relu(at::matmul(x, w.at("between")) * 2);
    inputs["twice"].push_back(x);
    x = at::relu(at::linear(x, w.at("twice")) * 2);
    inputs["out"].push_back(x);
  }
  return inputs;
}

// Stage by stage by hand: Gram of the inputs under the weights so far, then the layer's codes.
void ExpectTheCodesOfStagesByHand(size_t batches) {
  Fixture fixture = MakeNet(batches);
  const CapturePlan plan = fixture.Plan();
  const Recorder recorder = QuantizeAll(fixture, plan, {Gptq()}, CalibrationMode::kSequential);
  ASSERT_TRUE(recorder.done.at(0).ok()) << recorder.done.at(0);
  EXPECT_EQ(recorder.captures, 0);

  std::map<std::string, at::Tensor> weights;
  for (const TensorEntry& entry : fixture.replica->table().entries) {
    weights[entry.name] = entry.tensor.clone();
  }
  ExecutionContext context;
  for (const std::vector<std::string>& stage :
       std::vector<std::vector<std::string>>{{"q", "k"}, {"between"}, {"twice"}, {"out"}}) {
    const auto inputs = InputsByHand(weights, fixture.batches);
    for (const std::string& name : stage) {
      GramAccumulator gram(6);
      for (const at::Tensor& x : inputs.at(name)) {
        const at::Tensor rows = x.reshape({-1, 6}).contiguous();
        ASSERT_TRUE(gram.Add({rows.const_data_ptr<float>(), rows.size(0), 6}, context).ok());
      }
      const GramStatistics statistics = gram.Take();
      const bool transposed = name == "between";
      at::Tensor matrix = (transposed ? weights[name].t() : weights[name]).contiguous();
      auto quantized = Quantize({matrix.const_data_ptr<float>(), matrix.size(0), 6}, &statistics,
                                Gptq(), context);
      ASSERT_TRUE(quantized.ok()) << quantized.status();
      const size_t index = static_cast<size_t>(
          std::find_if(plan.layers.begin(), plan.layers.end(),
                       [&](const CoveredLayer& layer) { return layer.name == name; }) -
          plan.layers.begin());
      const Recorder::Layer& layer = recorder.layers.at({0, index});
      EXPECT_EQ(layer.weight.codes, quantized->codes) << name;
      EXPECT_EQ(layer.weight.dequantized, quantized->dequantized) << name;
      EXPECT_EQ(layer.tokens, statistics.tokens) << name;
      const at::Tensor decoded =
          at::from_blob(quantized->dequantized.data(), {matrix.size(0), 6}, at::kFloat).clone();
      weights[name] = transposed ? decoded.t().contiguous() : decoded;
    }
  }
}

TEST(ModelQuantizer, SequentialGivesTheCodesOfStagesByHand) { ExpectTheCodesOfStagesByHand(3); }

TEST(ModelQuantizer, SequentialGivesTheCodesOfStagesByHandOnOneBatch) {
  ExpectTheCodesOfStagesByHand(1);
}

TEST(ModelQuantizer, OnlyThePlaceOfALayerTellsTheModesApart) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  const Recorder one_shot = QuantizeAll(fixture, plan, {Rtn(), Gptq()}, CalibrationMode::kOneShot);
  const Recorder sequential =
      QuantizeAll(fixture, plan, {Rtn(), Gptq()}, CalibrationMode::kSequential);
  for (size_t layer = 0; layer < 5; ++layer) {
    // RTN needs no statistics: the codes are the same, measured with the same full-precision
    // inputs.
    EXPECT_EQ(one_shot.layers.at({0, layer}).weight.codes,
              sequential.layers.at({0, layer}).weight.codes);
    EXPECT_EQ(one_shot.layers.at({0, layer}).gram, sequential.layers.at({0, layer}).gram);
    // q and k come first: nothing before them is quantized.
    EXPECT_EQ(one_shot.layers.at({1, layer}).gram == sequential.layers.at({1, layer}).gram,
              layer < 2);
  }
}

TEST(ModelQuantizer, SaysWhatCalibrationCosts) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  const LayerSpecs rtn(5, Rtn());
  const LayerSpecs gptq(5, Gptq());
  LayerSpecs mixed = rtn;
  mixed[3] = Gptq();
  const auto with = [&](CalibrationMode mode, int64_t bytes) {
    return ModelQuantizer(*fixture.replica, plan, fixture.batches, fixture.backend,
                          {.mode = mode, .max_gram_bytes = bytes});
  };
  const ModelQuantizer one_shot = with(CalibrationMode::kOneShot, 2 * GramBytes(6));
  EXPECT_EQ(one_shot.SharedPasses({rtn, gptq}), 2);
  EXPECT_EQ(one_shot.OwnPasses(gptq), 0);
  const ModelQuantizer sequential = with(CalibrationMode::kSequential, kNoLimit);
  EXPECT_EQ(sequential.SharedPasses({rtn, gptq}), 1);
  EXPECT_EQ(sequential.SharedPasses({gptq}), 0);
  EXPECT_EQ(sequential.OwnPasses(rtn), 0);
  EXPECT_EQ(sequential.OwnPasses(gptq), 4);
  EXPECT_EQ(sequential.OwnPasses(mixed), 4);
}

TEST(ModelQuantizer, RunsMethodsWithoutStatisticsIfNoneCanBeHad) {
  auto broken = std::make_shared<bool>(false);
  Fixture fixture({{"w", Random({6, 6}, 3)}},
                  [broken](const TensorMap& w, const Batch& b) -> LossValues {
                    if (*broken) throw std::runtime_error("no data today");
                    return at::linear(b[0], w.at("w")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  *broken = true;
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    const Recorder recorder = QuantizeAll(fixture, plan, {Gptq(), Rtn()}, mode);
    EXPECT_EQ(recorder.done.at(0).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(recorder.done.at(1).ok());
    ASSERT_EQ(recorder.layers.size(), 1u);
    EXPECT_EQ(recorder.layers.at({1, 0}).tokens, -1);
    EXPECT_FALSE(recorder.layers.at({1, 0}).weight.loss);
    EXPECT_EQ(recorder.layers.at({1, 0}).weight.codes.size(), 36u);
  }
}

TEST(ModelQuantizer, StopsWhenCancelled) {
  Fixture fixture = MakeNet();
  const CapturePlan plan = fixture.Plan();
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    ExecutionContext context;
    context.cancel.Cancel();
    int layers = 0;
    const QuantizationRun run =
        ModelQuantizer(*fixture.replica, plan, fixture.batches, fixture.backend,
                       {.mode = mode, .max_gram_bytes = kNoLimit})
            .Run(
                {LayerSpecs(5, Rtn()), LayerSpecs(5, Gptq())},
                [&](size_t, size_t, const LayerGram*, const QuantizedMatrix&) { ++layers; },
                context);
    EXPECT_EQ(layers, 0);
    ASSERT_EQ(run.quantizers.size(), 2u);
    for (const QuantizationRun::Quantizer& quantizer : run.quantizers) {
      EXPECT_EQ(quantizer.status.code(), absl::StatusCode::kCancelled);
    }
  }
}

// The statuses of layers that meet `rows` rows, and of one that meets all.
std::vector<LayerStatus> StatusesOf(const std::string& list, const std::vector<int64_t>& rows,
                                    const QuantizerSpec& spec, CalibrationMode mode) {
  std::vector<NamedTensor> parameters = {{"all", Random({6, 6}, 3)}};
  int64_t tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    parameters.push_back({list + "." + std::to_string(i) + ".w", Random({6, 6}, 4 + i)});
    tokens += rows[i];
  }
  Fixture fixture(std::vector<Batch>{{Random({1, tokens, 6}, 1)}}, parameters,
                  [list, rows](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor x = at::relu(at::linear(b[0].select(0, 0), w.at("all")));
                    std::vector<at::Tensor> parts;
                    int64_t begin = 0;
                    for (size_t i = 0; i < rows.size(); ++i) {
                      parts.push_back(at::linear(x.narrow(0, begin, rows[i]),
                                                 w.at(list + "." + std::to_string(i) + ".w")));
                      begin += rows[i];
                    }
                    return at::cat(parts).sum(-1).unsqueeze(0);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_EQ(plan.layers.size(), rows.size() + 1);
  const ModelQuantizer quantizer(*fixture.replica, plan, fixture.batches, fixture.backend,
                                 {.mode = mode, .max_gram_bytes = 1});
  std::vector<LayerStatus> statuses(plan.layers.size());
  const QuantizationRun run =
      quantizer.Run({LayerSpecs(plan.layers.size(), spec)},
                    [&](size_t, size_t layer, const LayerGram*, QuantizedMatrix result) {
                      statuses[layer] = result.weight.status;
                    },
                    {});
  EXPECT_TRUE(run.quantizers[0].status.ok()) << run.quantizers[0].status;
  return statuses;
}

TEST(ModelQuantizer, RoundsExpertsToNearestThatMetFewRows) {
  constexpr LayerStatus kOk = LayerStatus::kOk;
  constexpr LayerStatus kFew = LayerStatus::kTooFewTokens;
  QuantizerSpec gptq{.method = QuantizationMethod::kGptq, .bits = 3, .group_size = -1};
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    EXPECT_THAT(StatusesOf("experts", {31, 32, 65}, gptq, mode), ElementsAre(kOk, kFew, kOk, kOk));
    EXPECT_THAT(StatusesOf("layers", {31, 32, 65}, gptq, mode), ElementsAre(kOk, kOk, kOk, kOk));
    // 0.5 % of 10,000 rows.
    EXPECT_THAT(StatusesOf("experts", {49, 50, 9901}, gptq, mode),
                ElementsAre(kOk, kFew, kOk, kOk));
  }
  const QuantizerSpec rtn{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = -1};
  EXPECT_THAT(StatusesOf("experts", {3, 60}, rtn, CalibrationMode::kOneShot),
              ElementsAre(kOk, kOk, kOk));
  gptq.min_tokens_ratio = 0;
  EXPECT_THAT(StatusesOf("experts", {3, 60}, gptq, CalibrationMode::kOneShot),
              ElementsAre(kOk, kOk, kOk));
}

}  // namespace model_quantizer_test
}  // namespace ptqwatch::internal
