#include "streamed/measure_checkpoint.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "base/strings.h"
#include "probes/loss_pairs.h"
#include "quantize/layer.h"
#include "quantize/methods.h"
#include "snapshot/memory_meter.h"
#include "snapshot/parameter_digest.h"
#include "streamed/average_reader.h"
#include "streamed/checkpoint_curvature.h"
#include "streamed/checkpoint_plan.h"
#include "streamed/token_stream.h"
#include "streamed/whole_model.h"
#include "support/probe_run.h"
#include "unit/streamed/tiny_checkpoint.h"

namespace ptqwatch::internal {
namespace measure_checkpoint_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyCheckpoint;

// A quantizer whose weights overflow the loss of the model.
absl::StatusOr<QuantizedWeight> Endless(const Layer& layer, const ExecutionContext&) {
  QuantizedWeight result;
  const auto size = static_cast<size_t>(layer.weight.rows * layer.weight.cols);
  result.codes.assign(size, 0);
  result.dequantized.assign(size, std::numeric_limits<float>::infinity());
  return result;
}
const Method kEndlessRow = {
    .bits = 2,
    .bytes = [](int64_t, int64_t, const QuantizerSpec&) { return int64_t{0}; },
    .quantize = Endless,
};
const QuantizationMethod kEndless = AddMethod({.name = "endless", .label = "no end"}, kEndlessRow);

// A monitor with the whole model in memory, on the same tokens in the same batches.
struct WholeModel {
  explicit WholeModel(const TinyCheckpoint& tiny) {
    auto made = MakeDecoderSubject(tiny.decoder, TokenBatches(tiny.data.probe),
                                   TokenBatches(tiny.data.calibration));
    EXPECT_TRUE(made.ok()) << made.status();
    subject = *std::move(made);
    MonitorOptions options;
    options.quantizers = tiny.options.quantizers;
    options.curvature = tiny.options.curvature;
    options.artifact_size = tiny.options.artifact_size;
    options.averaging.enabled = false;
    options.mixed_precision = false;
    options.relative_stderr = 0;
    options.absolute_stderr_ratio = 0;
    auto opened = testing::OpenProbes(*subject, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    suite = *std::move(opened);
    report = testing::MeasureReport(*suite);
  }
  std::unique_ptr<Subject> subject;
  std::unique_ptr<ProbeSuite> suite;
  Report report;
};

// Experts of a width with which those of a stack begin at addresses of all kinds.
constexpr std::string_view kOddExperts =
    ", \"num_experts\": 19, \"num_local_experts\": 19, \"intermediate_size\": 7, "
    "\"num_key_value_heads\": 4";

std::vector<std::string> NamesOf(const QuantizationReport& quantizer) {
  std::vector<std::string> names;
  for (const LayerQuantization& layer : quantizer.layers) names.push_back(layer.name);
  return names;
}

// Which experts tokens choose is seen in a whole model alone.
Report WithoutRouting(Report report) {
  if (report.noise) report.noise->routing_change_ratio.reset();
  for (QuantizationReport& quantizer : report.quantization) {
    std::string& detail = quantizer.prediction_detail;
    detail.resize(std::min(detail.size(), detail.find("; it does not see")));
    quantizer.routing_change_ratio.reset();
    quantizer.fallback_tokens_ratio.reset();
  }
  return report;
}

void ExpectSameNumbers(Report streamed, const Report& monitored) {
  const Report whole = WithoutRouting(monitored);
  for (QuantizationReport& quantizer : streamed.quantization) {
    for (LayerQuantization& layer : quantizer.layers) {
      EXPECT_TRUE(layer.accumulated_error_ratio) << layer.name;
      layer.accumulated_error_ratio.reset();
    }
  }
  EXPECT_EQ(streamed.probe_loss_nats, whole.probe_loss_nats);
  EXPECT_EQ(streamed.probe_loss_stderr_nats, whole.probe_loss_stderr_nats);
  EXPECT_EQ(streamed.probe_tokens, whole.probe_tokens);
  EXPECT_EQ(streamed.calibration_mode, whole.calibration_mode);
  EXPECT_EQ(streamed.noise, whole.noise);
  ASSERT_EQ(streamed.quantization.size(), whole.quantization.size());
  for (size_t i = 0; i < whole.quantization.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(streamed.quantization[i].status_detail, whole.quantization[i].status_detail);
    EXPECT_EQ(streamed.quantization[i].loss_nats, whole.quantization[i].loss_nats);
    EXPECT_EQ(streamed.quantization[i].displacement_norm, whole.quantization[i].displacement_norm);
    EXPECT_EQ(NamesOf(streamed.quantization[i]), NamesOf(whole.quantization[i]));
    EXPECT_EQ(streamed.quantization[i].layers, whole.quantization[i].layers);
    EXPECT_EQ(streamed.quantization[i], whole.quantization[i]);
  }
}

// A model type, and more of its config.
using FamilyCase = std::pair<const char*, const char*>;
// A monitor does not know that the biases of all experts are no matrix.
std::vector<SkippedLayer> WithoutStackedBiases(std::vector<SkippedLayer> skipped) {
  std::erase_if(skipped, [](const SkippedLayer& layer) { return layer.name.ends_with("_bias"); });
  return skipped;
}

class NumbersOf : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(NumbersOf, AreThoseOfTheWholeModel) {
  const TinyCheckpoint tiny(GetParam().first, GetParam().second);
  const WholeModel whole(tiny);
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->probe_tokens, 37 * 60);
  EXPECT_TRUE(report->quantization.at(0).artifact_bytes);
  ExpectSameNumbers(*report, whole.report);
  EXPECT_EQ(WithoutStackedBiases(report->skipped_layers),
            WithoutStackedBiases(whole.report.skipped_layers));
  EXPECT_EQ(report->snapshot_digest, *DigestOfParameters(whole.suite->session().replica(), {}));
}

INSTANTIATE_TEST_SUITE_P(
    MeasureCheckpoint, NumbersOf,
    ::testing::Values(
        FamilyCase("llama", ", \"num_key_value_heads\": 2"), FamilyCase("ernie4_5", ""),
        FamilyCase("gemma", ", \"num_key_value_heads\": 1"),
        FamilyCase("gemma2", ", \"num_key_value_heads\": 2, \"sliding_window\": 9"),
        FamilyCase("gemma3_text", ", \"num_key_value_heads\": 1, \"sliding_window_pattern\": 2"),
        FamilyCase("gpt2", ""),
        FamilyCase("gpt_oss", ", \"num_key_value_heads\": 2, \"sliding_window\": 9"),
        FamilyCase("gpt_oss", kOddExperts.data()),
        FamilyCase("granite", ", \"residual_multiplier\": 0.5, \"logits_scaling\": 2"),
        FamilyCase("granitemoe",
                   ", \"residual_multiplier\": 0.5, \"num_experts\": 9, \"num_local_experts\": 9"),

        FamilyCase("granitemoeshared", ", \"shared_intermediate_size\": 13"),
        FamilyCase("glm4", ", \"num_key_value_heads\": 2"),
        FamilyCase("hunyuan_v1_dense", ", \"num_key_value_heads\": 2"),
        FamilyCase("mistral", ", \"num_key_value_heads\": 2, \"sliding_window\": 9"),
        FamilyCase("mixtral", ", \"num_key_value_heads\": 2, \"sliding_window\": 9"),
        FamilyCase("phi3", ", \"num_key_value_heads\": 2"),
        FamilyCase("qwen2", ", \"num_key_value_heads\": 2"),
        FamilyCase("qwen2_moe",
                   ", \"num_key_value_heads\": 2, \"shared_expert_intermediate_size\": 13"),
        FamilyCase("qwen3_moe", ", \"num_key_value_heads\": 2, \"decoder_sparse_step\": 2"),
        FamilyCase("stablelm", ", \"num_key_value_heads\": 2"), FamilyCase("starcoder2", ""),
        FamilyCase("gpt_neox", ""), FamilyCase("olmo2", ", \"tie_word_embeddings\": true"),
        FamilyCase("olmoe", ", \"num_key_value_heads\": 2"),
        FamilyCase("olmoe", kOddExperts.data())),
    [](const auto& test) { return StrCat(test.param.first, "_", test.index); });

TEST(MeasureCheckpoint, RoundsExpertsWithFewTokensOrNone) {
  TinyCheckpoint tiny("olmoe", ", \"num_experts\": 30, \"num_local_experts\": 30");
  tiny.data.calibration = testing::TinyTokens(18, 20, 6);
  tiny.options.quantizers = {{.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 16}};
  const WholeModel whole(tiny);
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectSameNumbers(*report, whole.report);
  const std::vector<LayerQuantization>& layers = report->quantization[0].layers;
  const auto experts = std::find_if(layers.begin(), layers.end(), [](const auto& layer) {
    return layer.name == "model.layers.0.mlp.experts.gate_up_proj";
  });
  ASSERT_NE(experts, layers.end());
  EXPECT_EQ(experts->stacked, 30);
  EXPECT_EQ(experts->status, LayerStatus::kTooFewTokens);
  EXPECT_GT(*experts->stacked_ok, 0);
  EXPECT_LT(*experts->stacked_ok, 15);
  EXPECT_EQ(experts->tokens, 2 * 18 * 20);
}

TEST(MeasureCheckpoint, MeasuresTheLossUnderNoise) {
  TinyCheckpoint tiny;
  tiny.options.quantizers.resize(1);
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->noise);
  EXPECT_EQ(report->noise->status, ProbeStatus::kOk) << report->noise->status_detail;
  EXPECT_EQ(report->noise->relative_norm, 0.1);
  EXPECT_EQ(report->noise->probe_tokens, 37 * 60);
  EXPECT_GT(*report->noise->delta_stderr_nats, 0);
  EXPECT_EQ(report->cost.count("noise"), 1u);
  tiny.options.noise_relative_norm = 0;
  const auto without = tiny.Measure();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_FALSE(without->noise);
  EXPECT_EQ(without->quantization, report->quantization);
  tiny.options.noise_relative_norm = -1;
  EXPECT_THAT(std::string(tiny.Measure().status().message()),
              HasSubstr("noise_relative_norm = -1"));
}

class LossAlongOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(MeasureCheckpoint, LossAlongOf, ::testing::Values("llama", "olmoe"));

TEST_P(LossAlongOf, IsThatOfTheWholeModel) {
  TinyCheckpoint tiny(GetParam(), kOddExperts);
  tiny.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 16},
                             {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 16}};
  const auto without = tiny.Measure();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->quantization[0].loss_along.empty());
  tiny.options.loss_along = true;
  const ExecutionContext context;
  const auto report = tiny.Measure(context);
  ASSERT_TRUE(report.ok()) << report.status();
  const int64_t predicted = CostOf(tiny.decoder, tiny.data, tiny.options).bytes;
  EXPECT_LE(context.bytes->peak(), predicted);
  EXPECT_GE(context.bytes->peak(), predicted * 9 / 10);
  EXPECT_EQ(report->noise, without->noise);

  const WholeModel whole(tiny);
  ModelSession& session = whole.suite->session();
  Replica& replica = session.replica();
  const auto measured = whole.suite->Measure({}, {}, {.keep_quantized = true});
  ASSERT_TRUE(measured.ok()) << measured.status();
  const auto& result = std::get<QuantizationResult>(measured->results.at(0).value);
  for (size_t i = 0; i < 2; ++i) {
    const QuantizationReport& streamed = report->quantization[i];
    EXPECT_EQ(streamed.delta_nats, without->quantization[i].delta_nats);
    ASSERT_EQ(streamed.loss_along.size(), 3u);
    EXPECT_EQ(streamed.loss_along[1].delta_nats, streamed.delta_nats);
    EXPECT_EQ(streamed.loss_along[1].delta_stderr_nats, streamed.delta_stderr_nats);
    for (const LossAlong& along : streamed.loss_along) {
      SCOPED_TRACE(along.scale);
      if (along.scale == 1) continue;
      auto lease = replica.Use({});
      ASSERT_TRUE(lease.ok()) << lease.status();
      for (const Replica::Override& weight : result.weights.at(i)) {
        const at::Tensor loaded = replica.loaded(weight.entry);
        lease->Move(weight.entry, weight.value.view(loaded.sizes()) - loaded, along.scale);
      }
      LossPairs pairs;
      for (size_t batch = 0; batch < session.probe().size(); ++batch) {
        const Batch& tokens = session.probe()[batch];
        const auto losses = SumByUnit(*replica.Losses(tokens), tokens);
        ASSERT_TRUE(losses.ok()) << losses.status();
        ASSERT_TRUE(pairs.Add(result.losses.at(batch), *losses).ok());
      }
      EXPECT_EQ(along.delta_nats, pairs.Change().value);
      EXPECT_EQ(along.delta_stderr_nats, pairs.Change().stderr_value);
    }
    const double half = *streamed.loss_along[0].delta_nats;
    const double one = *streamed.loss_along[1].delta_nats;
    // d(a) = slope a + bend a^2, and 2 bend / ||d||^2.
    const double bend = 2 * one - 4 * half;
    ASSERT_EQ(streamed.critical_sharpness.has_value(), bend > 0);
    if (bend > 0) {
      EXPECT_NEAR(*streamed.critical_sharpness, 2 * bend / std::pow(*streamed.displacement_norm, 2),
                  1e-9 * *streamed.critical_sharpness);
    }
    EXPECT_NEAR(*streamed.loss_along[0].predicted_delta_nats, half, 1e-12);
    EXPECT_NEAR(*streamed.loss_along[2].predicted_delta_nats, 3 * one - 3 * half, 1e-12);
  }
}

TEST(MeasureCheckpoint, FollowsTheErrorThroughTheModel) {
  TinyCheckpoint tiny;
  tiny.options.quantizers = {{.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 16}};
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  const WholeModel whole(tiny);
  const auto measured = whole.suite->Measure({}, {}, {.keep_quantized = true});
  ASSERT_TRUE(measured.ok()) << measured.status();
  std::map<std::string, at::Tensor> quantized;
  for (const Replica::Override& weight :
       std::get<QuantizationResult>(measured->results.at(0).value).weights.at(0)) {
    quantized[whole.suite->session().replica().name(weight.entry)] = weight.value;
  }
  const at::Tensor& tokens = tiny.data.probe;
  at::Tensor full = *tiny.decoder.Embed(tokens.narrow(1, 0, tokens.size(1) - 1).contiguous());
  at::Tensor rounded = full;
  size_t row = 0;
  for (int64_t index = 0; index < tiny.decoder.blocks(); ++index) {
    const auto block = tiny.decoder.ReadBlock(index);
    ASSERT_TRUE(block.ok()) << block.status();
    const std::vector<DecoderLinear> linears = tiny.decoder.LinearsOf(index);
    full = block->Forward(full);
    rounded = block->Forward(rounded, [&](size_t linear, const at::Tensor& x) {
      return at::linear(x, quantized.at(linears[linear].name), block->biases()[linear]);
    });
    const double expected =
        ((rounded - full).to(at::kDouble).pow(2).sum() / full.to(at::kDouble).pow(2).sum())
            .item<double>();
    EXPECT_GT(expected, 1e-6);
    for (size_t linear = 0; linear < linears.size(); ++linear, ++row) {
      const LayerQuantization& layer = report->quantization[0].layers.at(row);
      EXPECT_EQ(layer.name, linears[linear].name);
      EXPECT_NEAR(layer.accumulated_error_ratio.value_or(0), expected, 1e-4 * expected);
    }
  }
}

TEST(MeasureCheckpoint, FillsInWhatItMeasured) {
  const TinyCheckpoint tiny;
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->quantization.size(), 5u);
  for (const QuantizationReport& quantizer : report->quantization) {
    EXPECT_EQ(quantizer.status, ProbeStatus::kOk) << quantizer.status_detail;
    EXPECT_NE(*quantizer.delta_nats, 0);
    EXPECT_EQ(quantizer.probe_tokens, 37 * 60);
    ASSERT_EQ(quantizer.layers.size(), 14u);
    EXPECT_EQ(quantizer.layers[7].name, "model.layers.1.self_attn.q_proj.weight");
    EXPECT_EQ(quantizer.layers[7].tokens, 20 * 60);
    EXPECT_GT(*quantizer.layers[7].output_error_ratio, 0);
  }
  EXPECT_EQ(report->quantization[2].method, QuantizationMethod::kGptq);
  EXPECT_LT(*report->quantization[2].layers[0].output_error_ratio,
            *report->quantization[0].layers[0].output_error_ratio);
  EXPECT_FALSE(report->curvature);
  EXPECT_FALSE(report->learning_rate);
  for (const char* part : {"digest", "read", "capture", "probe_loss", "gptq4"}) {
    EXPECT_EQ(report->cost.count(part), 1u) << part;
  }
  EXPECT_EQ(report->cost.count("stall"), 0u);
}

TEST(MeasureCheckpoint, MeasuresCurvatureOfAModelThatFits) {
  for (const char* model_type : {"llama", "gemma2", "gpt2", "olmoe"}) {
    SCOPED_TRACE(model_type);
    TinyCheckpoint tiny(model_type, ", \"num_key_value_heads\": 4");
    tiny.data.probe = testing::TinyTokens(12, 20, 5);
    tiny.options.quantizers.resize(2);
    tiny.options.curvature.enabled = true;
    const WholeModel whole(tiny);
    const auto report = tiny.Measure();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->curvature);
    ASSERT_EQ(report->curvature->status, ProbeStatus::kOk) << report->curvature->status_detail;
    EXPECT_GT(*report->curvature->top_eigenvalue, 0);
    CurvatureReport curvature = *report->curvature;
    // An estimate from one sequence or from more, depending on the time that one takes.
    curvature.graph_bytes = whole.report.curvature->graph_bytes;
    EXPECT_EQ(curvature, *whole.report.curvature);
    EXPECT_EQ(curvature.trace, whole.report.curvature->trace);
    ExpectSameNumbers(*report, whole.report);
    EXPECT_TRUE(report->quantization[0].predicted_delta_nats);
  }
}

TEST(MeasureCheckpoint, MeasuresNoMixtureByFiniteDifferences) {
  for (const auto& [model_type, expected] :
       {std::pair("llama", ProbeStatus::kOk), {"olmoe", ProbeStatus::kDisabled}}) {
    const TinyCheckpoint tiny(model_type);
    ProbeResult quantization{.outcome = {"quantization"}, .value = QuantizationResult{}};
    const ProbeResult measured =
        MeasureCheckpointCurvature(tiny.decoder, TokenBatches(testing::TinyTokens(2, 10, 5)), {},
                                   {}, quantization, {}, {.mode = HessianMode::kFiniteDifference});
    const CurvatureReport& report = std::get<CurvatureResult>(measured.value).report;
    EXPECT_EQ(report.status, expected) << report.status_detail;
    EXPECT_EQ(report.top_eigenvalue.has_value(), expected == ProbeStatus::kOk);
  }
}

TEST(MeasureCheckpoint, SaysThatTheWholeModelDoesNotFit) {
  TinyCheckpoint tiny;
  tiny.options.curvature.enabled = true;
  const CheckpointCost cost = CostOf(tiny.decoder, tiny.data, tiny.options);
  tiny.options.max_bytes = cost.curvature_bytes - 1;
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->curvature);
  EXPECT_EQ(report->curvature->status, ProbeStatus::kDisabled);
  EXPECT_THAT(report->curvature->status_detail, HasSubstr(std::to_string(cost.curvature_bytes)));
  EXPECT_EQ(report->quantization[0].status, ProbeStatus::kOk);
}

// The same numbers within `allowed` bytes.
void ExpectTheSameWithin(TinyCheckpoint& tiny, const Report& all, int64_t allowed) {
  SCOPED_TRACE(allowed);
  tiny.options.max_bytes = allowed;
  EXPECT_EQ(CostOf(tiny.decoder, tiny.data, tiny.options).bytes, allowed);
  const ExecutionContext context;
  const auto few = tiny.Measure(context);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->quantization, all.quantization);
  EXPECT_EQ(few->probe_loss_nats, all.probe_loss_nats);
  EXPECT_EQ(few->noise, all.noise);
  EXPECT_LE(context.bytes->peak(), allowed);
  EXPECT_EQ(context.bytes->used(), 0);
}

TEST(MeasureCheckpoint, DoesNotDependOnMemory) {
  TinyCheckpoint tiny;
  const auto all = tiny.Measure();
  ASSERT_TRUE(all.ok()) << all.status();
  const CheckpointBytes bytes = BytesOf(tiny.decoder, tiny.data, tiny.options);
  for (const int64_t together : {1, 2}) ExpectTheSameWithin(tiny, *all, bytes.Peak(together));
}

TEST(MeasureCheckpoint, SumsTheGramsOfAMixtureInParts) {
  TinyCheckpoint tiny("olmoe",
                      ", \"hidden_size\": 128, \"head_dim\": 32, \"intermediate_size\": 4, "
                      "\"num_experts\": 60, \"num_local_experts\": 60");
  tiny.data.probe = testing::TinyTokens(2, 30, 5);
  tiny.data.calibration = testing::TinyTokens(3, 30, 6);
  const auto all = tiny.Measure();
  ASSERT_TRUE(all.ok()) << all.status();
  const CheckpointBytes bytes = BytesOf(tiny.decoder, tiny.data, tiny.options);
  const int64_t one = bytes.Peak(1);
  const int64_t least = bytes.PeakInParts(bytes.gram);
  EXPECT_LT(least, one - bytes.grams / 2);
  for (const int64_t allowed : {one, one - 1, least}) ExpectTheSameWithin(tiny, *all, allowed);
}

TEST(MeasureCheckpoint, HoldsTheBytesThatItsCostSays) {
  const TinyCheckpoint tiny;
  const ExecutionContext context;
  ASSERT_TRUE(tiny.Measure(context).ok());
  const int64_t predicted = CostOf(tiny.decoder, tiny.data, tiny.options).bytes;
  EXPECT_LE(context.bytes->peak(), predicted);
  EXPECT_GE(context.bytes->peak(), predicted * 9 / 10);
  EXPECT_EQ(context.bytes->used(), 0);
  EXPECT_EQ(context.bytes->limit(), INT64_MAX);
}

TEST(MeasureCheckpoint, CountsWhatTheMeanOfAnExpertTakes) {
  const ModelConfig config = testing::ParsedTinyConfig(
      "olmoe",
      ", \"hidden_size\": 1024, \"intermediate_size\": 1024, \"num_experts\": 2, "
      "\"num_local_experts\": 2");
  const MapReader part(testing::RandomWeights(config));
  const auto mean = AverageReader::Create({{"a", &part}, {"b", &part}});
  ASSERT_TRUE(mean.ok()) << mean.status();
  const auto decoder = Decoder::Create(config, *mean);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const TinyCheckpoint tiny;
  const CheckpointBytes bytes = BytesOf(*decoder, tiny.data, tiny.options);
  for (const std::string& name : decoder->TensorNames()) {
    const MemoryMeter meter;
    ASSERT_TRUE(decoder->weights().Read(name).ok());
    EXPECT_LE(meter.peak(), bytes.tensor) << name;
  }
}

TEST(MeasureCheckpoint, SaysHowMuchMemoryWouldDo) {
  TinyCheckpoint tiny;
  const CheckpointBytes bytes = BytesOf(tiny.decoder, tiny.data, tiny.options);
  const int64_t least = std::min(bytes.Peak(1), bytes.PeakInParts(bytes.gram));
  tiny.options.max_bytes = least - 1;
  const absl::Status status = tiny.Measure().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(least)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_bytes = " + std::to_string(least - 1)));
}

TEST(MeasureCheckpoint, NamesATensorThatIsNotFinite) {
  const TinyCheckpoint tiny;
  tiny.reader.tensor("model.layers.1.mlp.up_proj.weight")[3][4] = std::nan("");
  const absl::Status status = tiny.Measure().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'model.layers.1.mlp.up_proj.weight'"));
}

TEST(MeasureCheckpoint, NamesAnExpertThatIsNotFinite) {
  const TinyCheckpoint tiny("olmoe");
  tiny.reader.tensor("model.layers.1.mlp.experts.down_proj")[3][4][5] = std::nan("");
  const absl::Status status = tiny.Measure().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'model.layers.1.mlp.experts.down_proj[3]' has 1 non-finite"));
}

TEST(MeasureCheckpoint, RefusesAModelWhoseLossIsNotFinite) {
  const TinyCheckpoint tiny;
  tiny.reader.tensor("lm_head.weight").mul_(1e38);
  tiny.reader.tensor("model.norm.weight").mul_(1e38);
  const absl::Status status = tiny.Measure().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("full-precision loss is not finite"));
}

TEST(MeasureCheckpoint, AQuantizerThatFailsAffectsNoOther) {
  TinyCheckpoint tiny;
  tiny.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 16},
                             {.method = kEndless, .bits = 2},
                             {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 16}};
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->quantization[1].status, ProbeStatus::kNonFinite);
  EXPECT_THAT(report->quantization[1].status_detail, HasSubstr("not finite"));
  EXPECT_FALSE(report->quantization[1].loss_nats);
  tiny.options.quantizers.erase(tiny.options.quantizers.begin() + 1);
  const auto without = tiny.Measure();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(report->quantization[0], without->quantization[0]);
  EXPECT_EQ(report->quantization[2], without->quantization[1]);
}

TEST(MeasureCheckpoint, ReportsProgress) {
  TinyCheckpoint tiny;
  tiny.options.quantizers.resize(1);
  std::vector<std::string> seen;
  tiny.options.progress = [&](const MeasurementProgress& progress) {
    seen.push_back(std::string(progress.part) + " " + std::to_string(progress.done) + "/" +
                   std::to_string(progress.of));
  };
  ASSERT_TRUE(tiny.Measure().ok());
  EXPECT_THAT(seen, ElementsAre("block 1/2", "block 2/2", "head 1/2", "head 2/2"));
}

TEST(MeasureCheckpoint, EndsSoonAfterItIsCancelled) {
  TinyCheckpoint tiny;
  ExecutionContext context;
  int blocks = 0;
  tiny.options.progress = [&](const MeasurementProgress&) { ++blocks; };
  int reads = 0;
  int after = 0;
  tiny.reader.on_read = [&](std::string_view name) {
    if (context.cancel.cancelled()) ++after;
    if (name == "model.layers.1.self_attn.q_proj.weight" && ++reads == 2) context.cancel.Cancel();
  };
  EXPECT_EQ(tiny.Measure(context).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(reads, 2);  // the first is for the digest
  EXPECT_EQ(blocks, 1);
  EXPECT_LT(after, 9);  // no tensor of another block
  EXPECT_EQ(context.bytes->used(), 0);
}

TEST(MeasureCheckpoint, RefusesTokensThatItCannotMeasure) {
  const auto message = [](void (*change)(TinyCheckpoint&)) {
    TinyCheckpoint tiny;
    change(tiny);
    const absl::Status status = tiny.Measure().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message([](TinyCheckpoint& tiny) { tiny.data.probe[2][3] = 37; }),
              HasSubstr("probe tokens contain 37; the vocabulary has 37"));
  EXPECT_THAT(message([](TinyCheckpoint& tiny) { tiny.data.calibration[0][0] = -4; }),
              HasSubstr("calibration tokens contain -4"));
  EXPECT_THAT(
      message([](TinyCheckpoint& tiny) { tiny.data.probe = testing::TinyTokens(1, 65, 0); }),
      HasSubstr("65 predictions; the model's context is 64"));
  EXPECT_THAT(message([](TinyCheckpoint& tiny) { tiny.data.probe = at::Tensor(); }),
              HasSubstr("expected int64 [sequences, N + 1]"));
  EXPECT_THAT(message([](TinyCheckpoint& tiny) { tiny.options.quantizers.clear(); }),
              HasSubstr("quantizers is empty"));
  EXPECT_THAT(message([](TinyCheckpoint& tiny) { tiny.options.max_bytes = -1; }),
              HasSubstr("max_bytes = -1"));
}

}  // namespace measure_checkpoint_test
}  // namespace ptqwatch::internal
