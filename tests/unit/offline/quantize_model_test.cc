#include "ptqwatch/offline/quantize_model.h"

#include <gmock/gmock.h>

#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "ATen/ops/conv2d.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/relu.h"
#include "monitor/compute_thread.h"
#include "support/fake_clock.h"
#include "support/probe_run.h"
#include "support/tiny_trainer.h"
#include "unit/capture/capture_fixture.h"

namespace ptqwatch {
namespace quantize_model_test {

using internal::Random;
using ::testing::ElementsAre;
using testing::Fault;
using ::testing::HasSubstr;
using testing::TinyTrainer;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

/// A convolution, an [in, out] weight and a head over images [4, 2, 5, 5].
std::unique_ptr<Subject> MakeImageSubject(std::vector<NamedTensor> live) {
  FunctionSubjectOptions options;
  options.live = std::move(live);
  options.losses = [](const TensorMap& w, const Batch& b) -> LossValues {
    at::Tensor x = at::relu(at::conv2d(b[0], w.at("conv"), w.at("bias"), 2, 1));
    x = at::relu(at::matmul(x.flatten(1), w.at("hidden")));
    return at::linear(x, w.at("head")).square().sum(-1);
  };
  options.probe = {{Random({4, 2, 5, 5}, 1)}};
  options.calibration = {{Random({4, 2, 5, 5}, 2)}, {Random({4, 2, 5, 5}, 3)}};
  return MakeFunctionSubject(std::move(options));
}

std::vector<NamedTensor> ImageModel() {
  return {{"conv", Random({3, 2, 3, 3}, 4)},
          {"bias", Random({3}, 5)},
          {"hidden", Random({27, 8}, 6)},
          {"head", Random({2, 8}, 7)}};
}

ModelQuantizationOptions Gptq3() {
  return {.spec = {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
}

TEST(QuantizeModel, QuantizesAFunctionAndNamesWhatItLeaves) {
  const std::vector<NamedTensor> live = ImageModel();
  std::vector<at::Tensor> before;
  for (const NamedTensor& named : live) before.push_back(named.tensor.clone());
  const auto subject = MakeImageSubject(live);
  std::vector<std::string> progress;
  std::vector<double> seconds;
  testing::FakeClock clock;
  ModelQuantizationOptions options = Gptq3();
  options.overrides = {{"hid*", {.method = QuantizationMethod::kRtn, .bits = 8}, "gptq3"}};
  options.progress = [&](const LayerProgress& layer) {
    progress.push_back(std::to_string(layer.layer) + "/" + std::to_string(layer.layers) + " " +
                       std::string(layer.name));
    seconds.push_back(layer.seconds);
    clock.Advance(std::chrono::seconds(3));
  };
  ExecutionContext context;
  context.clock = &clock;
  const auto result = QuantizeModel(*subject, options, context);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(progress, ElementsAre("1/2 conv", "2/2 hidden"));
  EXPECT_THAT(seconds, ElementsAre(0, 3));

  ASSERT_EQ(result->layers.size(), 2u);
  const QuantizedLayer& conv = result->layers[0];
  EXPECT_EQ(conv.name, "conv");
  EXPECT_THAT(conv.shape, ElementsAre(3, 2, 3, 3));
  EXPECT_EQ(conv.outputs, 3);
  EXPECT_EQ(conv.inputs, 18);
  EXPECT_FALSE(conv.transposed);
  EXPECT_EQ(conv.spec, options.spec);
  EXPECT_EQ(conv.tokens, 2 * 4 * 3 * 3);
  EXPECT_EQ(conv.weight.codes.size(), 54u);
  EXPECT_EQ(conv.weight.status, LayerStatus::kOk);
  EXPECT_TRUE(conv.weight.loss);
  const QuantizedLayer& hidden = result->layers[1];
  EXPECT_THAT(hidden.shape, ElementsAre(27, 8));
  EXPECT_EQ(hidden.outputs, 8);
  EXPECT_EQ(hidden.inputs, 27);
  EXPECT_TRUE(hidden.transposed);
  EXPECT_EQ(hidden.spec.method, QuantizationMethod::kRtn);
  EXPECT_EQ(hidden.spec.bits, 8);
  // Row 0 of the matrix is column 0 of the model's parameter.
  EXPECT_NEAR(hidden.weight.dequantized[1], live[2].tensor[1][0].item<float>(), 5e-3);

  std::map<std::string, std::string> skipped;
  for (const SkippedLayer& layer : result->skipped) skipped[layer.name] = layer.reason;
  EXPECT_EQ(skipped.size(), 2u);
  EXPECT_THAT(skipped["head"], HasSubstr("output head"));
  EXPECT_THAT(skipped["bias"], HasSubstr("not a matrix"));
  EXPECT_EQ(result->parameters, 54 + 3 + 216 + 16);
  EXPECT_EQ(result->covered_parameters, 54 + 216);
  EXPECT_EQ(result->unseen, std::nullopt);
  for (size_t i = 0; i < live.size(); ++i) EXPECT_TRUE(live[i].tensor.equal(before[i]));
}

TEST(QuantizeModel, DiffersFromTheOtherCalibrationOnlyBehindTheFirstLayer) {
  auto context = ExecutionContext();
  ModelQuantizationOptions options = Gptq3();
  const auto one_shot = QuantizeModel(*MakeImageSubject(ImageModel()), options, context);
  options.calibration_mode = CalibrationMode::kSequential;
  const auto sequential = QuantizeModel(*MakeImageSubject(ImageModel()), options, context);
  ASSERT_TRUE(one_shot.ok() && sequential.ok());
  EXPECT_EQ(one_shot->layers[0].weight.codes, sequential->layers[0].weight.codes);
  EXPECT_NE(one_shot->layers[1].weight.loss, sequential->layers[1].weight.loss);
}

/// The report of a monitor with the same options on the same weights.
Report MonitorsReport(const TinyTrainer& trainer, const MonitorOptions& options) {
  const auto subject = trainer.MakeSubject();
  const auto table = internal::MakeTensorTable(subject->LiveTensors());
  auto suite = testing::OpenProbes(*subject, options);
  EXPECT_TRUE(suite.ok()) << suite.status();
  if (!suite.ok()) return {};
  internal::Snapshot snapshot;
  for (const internal::TensorEntry& entry : table->entries) {
    snapshot.tensors.push_back(entry.tensor.detach().clone());
  }
  (*suite)->Load(snapshot);
  return testing::MeasureReport(**suite);
}

TEST(QuantizeModel, GivesWhatAMonitorMeasuresOfAModule) {
  std::thread([] {
    internal::InitComputeThread();
    TinyTrainer trainer;
    for (int i = 0; i < 20; ++i) trainer.Step();
    const std::string before = trainer.Bytes();
    for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
      MonitorOptions monitor;
      monitor.curvature.enabled = false;
      monitor.calibration_mode = mode;
      monitor.max_gram_bytes = internal::GramBytes(16);  // a pass a layer
      monitor.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                            {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
      const Report report = MonitorsReport(trainer, monitor);
      EXPECT_EQ(report.calibration_mode, mode);
      ASSERT_EQ(report.quantization.size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        auto context = ExecutionContext();
        const auto result =
            QuantizeModel(*trainer.MakeSubject(),
                          {.spec = monitor.quantizers[i], .calibration_mode = mode}, context);
        ASSERT_TRUE(result.ok()) << result.status();
        const QuantizationReport& measured = report.quantization[i];
        ASSERT_EQ(measured.status, ProbeStatus::kOk) << measured.status_detail;
        ASSERT_EQ(result->layers.size(), 3u);
        ASSERT_EQ(measured.layers.size(), 3u);
        for (size_t l = 0; l < 3; ++l) {
          const QuantizedLayer& layer = result->layers[l];
          EXPECT_EQ(layer.name, measured.layers[l].name);
          EXPECT_EQ(layer.tokens, measured.layers[l].tokens);
          EXPECT_EQ(*layer.weight.loss / *layer.weight.output_energy,
                    *measured.layers[l].output_error_ratio);
        }
      }
    }
    EXPECT_TRUE(trainer.Bytes() == before);
  }).join();
}

TEST(QuantizeModel, RefusesBadOptionsByName) {
  auto context = ExecutionContext();
  const auto refusal = [&](const ModelQuantizationOptions& options) {
    const absl::Status status =
        QuantizeModel(*MakeImageSubject(ImageModel()), options, context).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  ModelQuantizationOptions options = Gptq3();
  options.spec.bits = 9;
  EXPECT_THAT(refusal(options), HasSubstr("spec"));
  options = Gptq3();
  options.overrides = {{"*.up", {.damp = -1}}};
  EXPECT_THAT(refusal(options), HasSubstr("overrides['*.up']"));
  options.overrides = {{"*.up", {.bits = 8}, "gptq4"}};
  EXPECT_THAT(refusal(options), HasSubstr("overrides['*.up'].of = 'gptq4': is none of the "
                                          "quantizers, gptq3"));
  options = Gptq3();
  options.max_gram_bytes = 0;
  EXPECT_THAT(refusal(options), HasSubstr("max_gram_bytes = 0"));
}

TEST(QuantizeModel, FailsWithTheReasonOfTheSubject) {
  TinyTrainer trainer;
  for (const auto& [fault, says] :
       std::map<Fault, std::string>{{Fault::kReplicaThrows, "no such checkpoint"},
                                    {Fault::kLossesThrow, "index out of range"},
                                    {Fault::kLossesNotDeterministic, "different values"}}) {
    auto context = ExecutionContext();
    const auto result = QuantizeModel(*trainer.MakeSubject(fault), {}, context);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(result.status()), HasSubstr(says));
  }
  auto context = ExecutionContext();
  ModelQuantizationOptions options = Gptq3();
  options.layers.include = {"nothing.*"};
  const auto result = QuantizeModel(*MakeImageSubject(ImageModel()), options, context);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      Message(result.status()),
      ::testing::MatchesRegex(
          "no layer is left to quantize \\(('[^']+': [^;]+; )+.*\\)\\. See LayerSelection.*"));
}

TEST(QuantizeModel, RefusesAModelThatIsNotFinite) {
  const std::vector<NamedTensor> live = ImageModel();
  live[2].tensor[1][1] = std::numeric_limits<float>::infinity();
  auto context = ExecutionContext();
  const auto result = QuantizeModel(*MakeImageSubject(live), Gptq3(), context);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(result.status()), HasSubstr("'hidden' has 1 non-finite"));
}

TEST(QuantizeModel, SaysThatMemoryRanOut) {
  TinyTrainer trainer;
  // LibTorch's CPU allocator throws a plain c10::Error.
  const auto subject = trainer.MakeSubject(Fault::kNone, [] { at::ones({int64_t{1} << 50}); });
  EXPECT_EQ(QuantizeModel(*subject).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(QuantizeModel, TellsLayersThatHadTooFewTokens) {
  ModelQuantizationOptions options = Gptq3();
  options.spec.min_tokens_ratio = 1;  // the hidden layer has 27 inputs and sees 8 rows
  auto context = ExecutionContext();
  const auto result = QuantizeModel(*MakeImageSubject(ImageModel()), options, context);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->layers[0].weight.status, LayerStatus::kOk);
  EXPECT_EQ(result->layers[1].weight.status, LayerStatus::kTooFewTokens);
  EXPECT_EQ(result->layers[1].weight.codes.size(), 216u);
}

TEST(QuantizeModel, CanBeCancelledFromItsProgress) {
  auto context = ExecutionContext();
  ModelQuantizationOptions options = Gptq3();
  int calls = 0;
  options.progress = [&](const LayerProgress&) {
    ++calls;
    context.cancel.Cancel();
  };
  const auto result = QuantizeModel(*MakeImageSubject(ImageModel()), options, context);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 1);
}

}  // namespace quantize_model_test
}  // namespace ptqwatch
