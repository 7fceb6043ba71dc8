#include "ptqwatch/function_subject.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/tanh.h"
#include "monitor/compute_thread.h"
#include "ptqwatch/monitor.h"
#include "snapshot/replica.h"
#include "staging/slot_filler.h"
#include "support/probe_run.h"
#include "support/recording_exporter.h"

namespace ptqwatch {
namespace function_subject_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kClasses = 6;
constexpr int64_t kWidth = 8;

/// A trainer's arrays: an embedding tied to the head, a hidden weight that is kept transposed, a
/// scale that is a buffer.
struct RawModel {
  explicit RawModel(uint64_t seed)
      : embedding(kClasses * kWidth), hidden(kWidth * kWidth), scale(1, 1.0f) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (std::vector<float>* array : {&embedding, &hidden}) {
      const at::Tensor values = at::rand({static_cast<int64_t>(array->size())}, generator) - 0.5;
      std::copy_n(values.const_data_ptr<float>(), array->size(), array->begin());
    }
  }
  std::vector<NamedTensor> Wrap() {
    const at::Tensor table = at::from_blob(embedding.data(), {kClasses, kWidth}, at::kFloat);
    return {
        {"embedding", table, true},
        {"hidden",
         at::from_blob(hidden.data(), {kWidth, kWidth}, /*strides=*/{1, kWidth}, at::kFloat), true},
        // Tied as a trainer does it: the same address once more.
        {"head", at::from_blob(embedding.data(), {kClasses, kWidth}, at::kFloat), true},
        {"scale", at::from_blob(scale.data(), {1}, at::kFloat), false}};
  }
  /// Stands for an optimizer step.
  void Update() {
    for (float& value : hidden) value = 0.9f * value + 0.02f;
    for (size_t i = 0; i < embedding.size(); ++i) {
      embedding[i] += 0.01f * static_cast<float>(i % 3);
    }
  }

  std::vector<float> embedding;
  std::vector<float> hidden;
  std::vector<float> scale;
};

LossValues Losses(const TensorMap& tensors, const Batch& batch) {
  const at::Tensor x = at::embedding(tensors.at("embedding"), batch[0]);
  const at::Tensor h = at::tanh(at::linear(x, tensors.at("hidden"))) * tensors.at("scale");
  const at::Tensor logits = at::matmul(h, tensors.at("head").t());
  return at::cross_entropy_loss(logits.flatten(0, 1), batch[1].flatten(), {}, at::Reduction::None)
      .view(batch[1].sizes());
}

std::vector<Batch> Batches(uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back({at::randint(kClasses, {8, 5}, generator, at::kLong),
                       at::randint(kClasses, {8, 5}, generator, at::kLong)});
  }
  return batches;
}

FunctionSubjectOptions Options(RawModel& model) {
  return {.live = model.Wrap(), .losses = Losses, .probe = Batches(1), .calibration = Batches(2)};
}

MonitorOptions QuantizerOptions() {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = 1;
  options.duty_cycle = 1.0;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                        {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = -1}};
  return options;
}

std::unique_ptr<internal::Replica> MakeReplica(Subject& subject) {
  auto replica = internal::Replica::Create(
      &subject, *internal::MakeTensorTable(subject.LiveTensors()), {&subject.probe()[0]});
  EXPECT_TRUE(replica.ok()) << replica.status();
  return replica.ok() ? *std::move(replica) : nullptr;
}

TEST(FunctionSubject, MakesAReplicaOfTheSameShapesStridesAndTies) {
  RawModel model(1);
  const auto subject = MakeFunctionSubject(Options(model));
  ASSERT_TRUE(subject->BuildReplica().ok());
  const std::vector<NamedTensor> live = subject->LiveTensors();
  const std::vector<NamedTensor> replica = subject->ReplicaTensors();
  ASSERT_EQ(replica.size(), 4u);
  for (size_t i = 0; i < live.size(); ++i) {
    EXPECT_EQ(replica[i].name, live[i].name);
    EXPECT_EQ(replica[i].is_parameter, live[i].is_parameter);
    EXPECT_EQ(replica[i].tensor.sizes(), live[i].tensor.sizes());
    EXPECT_EQ(replica[i].tensor.strides(), live[i].tensor.strides());
    EXPECT_EQ(replica[i].tensor.requires_grad(), live[i].is_parameter);
    EXPECT_FALSE(live[i].tensor.requires_grad());
    EXPECT_NE(replica[i].tensor.const_data_ptr(), live[i].tensor.const_data_ptr());
  }
  EXPECT_TRUE(replica[0].tensor.is_same(replica[2].tensor));
}

TEST(FunctionSubject, HasTheWholeOfShardedTensorsInItsReplica) {
  RawModel model(1);
  FunctionSubjectOptions options = Options(model);
  const at::Tensor rows = options.live[0].tensor.narrow(0, 2, 3);
  for (const size_t tied : {0u, 2u}) {
    options.live[tied].tensor = rows;
    options.live[tied].global_shape = {kClasses, kWidth};
    options.live[tied].offset = {2, 0};
  }
  const auto subject = MakeFunctionSubject(std::move(options));
  ASSERT_TRUE(subject->BuildReplica().ok());
  const std::vector<NamedTensor> replica = subject->ReplicaTensors();
  EXPECT_THAT(replica[0].tensor.sizes().vec(), ElementsAre(kClasses, kWidth));
  EXPECT_TRUE(replica[0].tensor.requires_grad());
  EXPECT_TRUE(replica[0].tensor.is_same(replica[2].tensor));
  EXPECT_TRUE(at::equal(replica[1].tensor, subject->LiveTensors()[1].tensor));
  EXPECT_THAT(std::string(Monitor::Create(MakeFunctionSubject([&] {
                                            FunctionSubjectOptions parts = Options(model);
                                            parts.live = subject->LiveTensors();
                                            return parts;
                                          }()),
                                          QuantizerOptions())
                              .status()
                              .message()),
              HasSubstr("sharded over ranks"));
}

TEST(FunctionSubject, GivesTheClosureTheSameMapEveryTime) {
  RawModel model(1);
  std::vector<const TensorMap*> maps;
  FunctionSubjectOptions options = Options(model);
  options.losses = [&maps](const TensorMap& tensors, const Batch& batch) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) names.push_back(name);
    EXPECT_THAT(names, ElementsAre("embedding", "head", "hidden", "scale"));
    maps.push_back(&tensors);
    return Losses(tensors, batch);
  };
  const auto subject = MakeFunctionSubject(std::move(options));
  const auto replica = MakeReplica(*subject);
  EXPECT_TRUE(replica->Losses(subject->probe()[1]).ok());
  ASSERT_GE(maps.size(), 2u);
  EXPECT_EQ(maps.front(), maps.back());
}

TEST(FunctionSubject, SnapshotsSeeWhatTheTrainerWroteAndTheReplicaOnlyWhatIsLoaded) {
  RawModel model(1);
  const auto subject = MakeFunctionSubject(Options(model));
  const auto replica = MakeReplica(*subject);
  const internal::TensorTable table = *internal::MakeTensorTable(subject->LiveTensors());
  internal::SlotPage page;
  internal::Slot slot(&page, internal::MakeSlotTensors(table));
  internal::SlotFiller filler(table, &slot, *internal::DeviceStream::Create(at::kCPU, at::kCPU));
  const Batch& batch = subject->probe()[0];
  const at::Tensor before = replica->Losses(batch)->values.clone();

  model.Update();
  const std::vector<float> updated = model.hidden;
  ASSERT_EQ(filler.TryFill(*subject, {}, *Clock::Real()).result, SnapshotResult::kTaken);
  model.Update();
  EXPECT_TRUE(at::equal(replica->Losses(batch)->values, before));

  const internal::Snapshot* snapshot = slot.BeginLoading();
  ASSERT_NE(snapshot, nullptr);
  replica->Load(snapshot->tensors);
  // Written transposed, so element (i, j) is at j * width + i.
  for (int64_t i = 0; i < kWidth; ++i) {
    for (int64_t j = 0; j < kWidth; ++j) {
      EXPECT_EQ(replica->loaded(1)[i][j].item<float>(),
                updated[static_cast<size_t>(j * kWidth + i)]);
    }
  }
  EXPECT_FALSE(at::equal(replica->Losses(batch)->values, before));
}

TEST(FunctionSubject, HasGradientsInEveryParameterAfterTheMoveToFlatBuffers) {
  RawModel model(1);
  const auto subject = MakeFunctionSubject(Options(model));
  const auto replica = MakeReplica(*subject);
  const std::vector<NamedTensor> tensors = subject->ReplicaTensors();
  at::AutoGradMode with_gradients(true);
  const auto mean_loss = [&] { return subject->ReplicaLosses(subject->probe()[0]).values.mean(); };
  mean_loss().backward();
  EXPECT_FALSE(tensors[3].tensor.grad().defined());
  // Against a central difference along the gradient itself, in each parameter.
  for (const size_t i : {0, 1}) {
    const at::Tensor gradient = tensors[i].tensor.grad();
    ASSERT_TRUE(gradient.defined()) << tensors[i].name;
    const double slope = gradient.norm().item<double>();
    EXPECT_GT(slope, 1e-3) << tensors[i].name;
    at::NoGradGuard no_grad;
    const at::Tensor step = gradient * (1e-2 / slope);
    at::Tensor weight = replica->table().entries[i].tensor;
    weight.add_(step);
    const double up = mean_loss().item<double>();
    weight.sub_(step, 2);
    const double down = mean_loss().item<double>();
    weight.copy_(replica->loaded(static_cast<int>(i)));
    EXPECT_NEAR((up - down) / 2e-2, slope, 1e-2 * slope) << tensors[i].name;
  }
}

std::unique_ptr<Monitor> StartMonitor(RawModel& model,
                                      std::shared_ptr<testing::Recording> recording) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(std::move(recording)));
  auto monitor = Monitor::Create(MakeFunctionSubject(Options(model)), QuantizerOptions(),
                                 std::move(exporters));
  EXPECT_TRUE(monitor.ok()) << monitor.status();
  return *std::move(monitor);
}

TEST(FunctionSubject, IsMeasuredBesideTrainingAsInItsPlace) {
  RawModel model(3);
  auto recording = std::make_shared<testing::Recording>();
  const auto monitor = StartMonitor(model, recording);
  std::vector<RawModel> at_step = {model};
  for (int64_t step = 1; step <= 3; ++step) {
    model.Update();
    at_step.push_back(model);
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
    model.Update();  // after OnStep has returned the memory is the trainer's again
    ASSERT_TRUE(recording->WaitForReports(static_cast<size_t>(step)));
  }
  const auto reports = recording->Reports();
  ASSERT_EQ(reports.size(), 3u);

  std::thread([&] {
    internal::InitComputeThread();
    RawModel other(9);
    const auto subject = MakeFunctionSubject(Options(other));
    const auto suite = testing::OpenProbes(*subject, QuantizerOptions());
    ASSERT_TRUE(suite.ok()) << suite.status();
    internal::ProbeState state;
    for (const auto& live : reports) {
      internal::Snapshot snapshot;
      std::vector<NamedTensor> tensors = at_step[static_cast<size_t>(live->report.step)].Wrap();
      snapshot.tensors = {tensors[0].tensor, tensors[1].tensor, tensors[3].tensor};
      (*suite)->Load(snapshot);
      const Report again =
          testing::MeasureReport(**suite, &state, {.sequence = live->report.sequence});
      EXPECT_EQ(again.probe_status, ProbeStatus::kOk);
      EXPECT_EQ(again.probe_loss_nats, live->report.probe_loss_nats);
      EXPECT_EQ(again.quantization, live->report.quantization);
      EXPECT_EQ(again.curvature, live->report.curvature);
      ASSERT_EQ(again.quantization.size(), 2u);
      ASSERT_EQ(again.quantization[0].layers.size(), 1u);
      EXPECT_EQ(again.quantization[0].layers[0].name, "hidden");
      EXPECT_EQ(again.quantization[0].layers[0].status, LayerStatus::kOk);
    }
  }).join();
}

TEST(FunctionSubject, ReportsNaNAndGoesOn) {
  RawModel model(4);
  auto recording = std::make_shared<testing::Recording>();
  const auto monitor = StartMonitor(model, recording);
  const float good = model.hidden[5];
  for (int64_t step = 1; step <= 2; ++step) {
    model.hidden[5] = step == 1 ? std::numeric_limits<float>::quiet_NaN() : good;
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
    ASSERT_TRUE(recording->WaitForReports(static_cast<size_t>(step)));
  }
  const auto reports = recording->Reports();
  EXPECT_EQ(reports[0]->report.probe_status, ProbeStatus::kNonFinite);
  EXPECT_THAT(reports[0]->report.probe_status_detail, HasSubstr("'hidden'"));
  EXPECT_EQ(reports[1]->report.probe_status, ProbeStatus::kOk);
}

/// The status of Create for options that `change` has spoilt.
template <typename Change>
absl::Status CreateStatus(Change change) {
  RawModel model(1);
  FunctionSubjectOptions options = Options(model);
  change(options);
  const RawModel before = model;
  const absl::Status status =
      Monitor::Create(MakeFunctionSubject(std::move(options)), QuantizerOptions()).status();
  EXPECT_EQ(model.embedding, before.embedding);
  EXPECT_EQ(model.hidden, before.hidden);
  return status;
}

TEST(FunctionSubject, IsAcceptedAsItIsInTheseTests) {
  EXPECT_TRUE(CreateStatus([](FunctionSubjectOptions&) {}).ok());
}

TEST(FunctionSubject, RefusesInvalidTensors) {
  using Options = FunctionSubjectOptions;
  const auto message = [](auto change) { return std::string(CreateStatus(change).message()); };
  EXPECT_THAT(message([](Options& options) { options.live.clear(); }),
              HasSubstr("lists 0 tensors"));
  EXPECT_THAT(message([](Options& options) {
                for (NamedTensor& named : options.live) named.is_parameter = false;
              }),
              HasSubstr("lists 4 tensors, none of them a parameter"));
  EXPECT_THAT(message([](Options& options) { options.live[1].tensor.reset(); }),
              HasSubstr("FunctionSubjectOptions.live[1] ('hidden') is undefined"));
  EXPECT_THAT(message([](Options& options) {
                options.live[1].tensor = at::from_blob(nullptr, {kWidth, kWidth}, at::kFloat);
              }),
              HasSubstr("'hidden' of shape [8, 8] has no memory"));
}

TEST(FunctionSubject, RefusesNamesThatAreEmptyOrTheSame) {
  using Options = FunctionSubjectOptions;
  const auto message = [](auto change) { return std::string(CreateStatus(change).message()); };
  EXPECT_THAT(message([](Options& options) { options.live[2].name.clear(); }),
              HasSubstr("FunctionSubjectOptions.live[2] has an empty name"));
  EXPECT_THAT(message([](Options& options) { options.live[3].name = "hidden"; }),
              HasSubstr("FunctionSubjectOptions.live[1] and live[3] are both named 'hidden'"));
}

TEST(FunctionSubject, RefusesMemoryThatCannotBeCopiedAsAWhole) {
  using Options = FunctionSubjectOptions;
  const auto message = [](auto change) { return std::string(CreateStatus(change).message()); };
  EXPECT_THAT(message([](Options& options) {
                options.live.push_back({"gaps", at::ones({4, 4}).select(1, 0), true});
              }),
              HasSubstr("'gaps' is not a dense"));
  EXPECT_THAT(message([](Options& options) {
                options.live.push_back({"part", options.live[0].tensor.narrow(0, 1, 2), true});
              }),
              HasSubstr("'embedding' and 'part' share a part"));
}

TEST(FunctionSubject, RefusesAParameterThatIsNotFloatingPoint) {
  const absl::Status status = CreateStatus([](FunctionSubjectOptions& options) {
    options.live.push_back({"count", at::ones({1}, at::kLong), true});
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("live[4] ('count') is a parameter of type"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Long"));
  EXPECT_TRUE(CreateStatus([](FunctionSubjectOptions& options) {
                options.live.push_back({"count", at::ones({1}, at::kLong), false});
              }).ok());
}

TEST(FunctionSubject, RefusesMissingLossesAndMissingData) {
  using Options = FunctionSubjectOptions;
  const auto message = [](auto change) { return std::string(CreateStatus(change).message()); };
  EXPECT_THAT(message([](Options& options) { options.losses = nullptr; }),
              HasSubstr("FunctionSubjectOptions.losses is not set"));
  EXPECT_THAT(message([](Options& options) { options.probe.clear(); }), HasSubstr("probe"));
  EXPECT_THAT(message([](Options& options) { options.live[1].name = "hiden"; }),
              HasSubstr("losses threw: no tensor is named 'hidden'; the nearest is 'hiden'; the "
                        "batch was Long [8, 5], Long [8, 5]"));
}

// As many trainers begin: a constant added to all of the head's weights would change no loss.
TEST(FunctionSubject, TakesAnOutputHeadOfZeros) {
  RawModel model(7);
  std::vector<float> head(kClasses * kWidth, 0.0f);
  FunctionSubjectOptions options = Options(model);
  options.live[2].tensor = at::from_blob(head.data(), {kClasses, kWidth}, at::kFloat);
  const auto monitor = Monitor::Create(MakeFunctionSubject(std::move(options)), QuantizerOptions());
  EXPECT_TRUE(monitor.ok()) << monitor.status();
}

TEST(FunctionSubject, RefusesAStreamOfAnotherDevice) {
  const absl::Status status = CreateStatus([](FunctionSubjectOptions& options) {
    options.stream = c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, 1), /*id=*/3);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stream 3 of cuda:1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("on cpu"));
  EXPECT_TRUE(CreateStatus([](FunctionSubjectOptions& options) {
                options.stream = c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
              }).ok());
}

TEST(FunctionSubject, TakesItsOptionalDataFromTheProbe) {
  RawModel model(1);
  FunctionSubjectOptions options = Options(model);
  options.calibration.clear();
  const auto subject = MakeFunctionSubject(std::move(options));
  EXPECT_EQ(subject->calibration().size(), 3u);
  EXPECT_TRUE(subject->curvature().empty());
  EXPECT_FALSE(subject->UpdateStream());
}

}  // namespace function_subject_test
}  // namespace ptqwatch
