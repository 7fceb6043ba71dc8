#include "session/model_session.h"

#include <gmock/gmock.h>

#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "absl/cleanup/cleanup.h"
#include "ptqwatch/function_subject.h"
#include "snapshot/device_stream.h"
#include "support/fake_device.h"

namespace ptqwatch::internal {
namespace model_session_test {

using ::testing::HasSubstr;

/// Two layers over [sequences, 4] inputs.
class ModelSessionTest : public ::testing::Test {
 protected:
  ModelSessionTest() {
    options_.live = {{"up", at::arange(24, at::kFloat).view({6, 4}) / 24, true},
                     {"down", at::ones({3, 6}), true},
                     {"scale", at::ones({1}), false}};
    options_.losses = [](const TensorMap& w, const Batch& b) -> LossValues {
      const at::Tensor hidden = at::linear(b[0], w.at("up")).tanh();
      return (at::linear(hidden, w.at("down")) * w.at("scale")).square().sum(-1);
    };
    options_.probe = {{Inputs(70)}, {Inputs(10)}};
    options_.calibration = {{Inputs(5)}};
  }
  static at::Tensor Inputs(int64_t sequences) {
    return at::arange(sequences * 4, at::kFloat).view({sequences, 4}) / 100;
  }
  absl::StatusOr<std::unique_ptr<ModelSession>> Open(const ModelSessionOptions& needed) {
    subject_ = MakeFunctionSubject(options_);
    return ModelSession::Open(*subject_, needed);
  }
  absl::Status Refusal(const ModelSessionOptions& needed) { return Open(needed).status(); }

  FunctionSubjectOptions options_;
  std::unique_ptr<Subject> subject_;
};

const CaptureRequest kEverything = {.max_gram_bytes = std::numeric_limits<int64_t>::max()};

TEST_F(ModelSessionTest, ReservesWhatItHoldsAndGivesItBack) {
  auto bytes = std::make_shared<ByteBudget>();
  {
    const auto session = Open({.probe = true, .snapshots = true, .bytes = bytes});
    ASSERT_TRUE(session.ok()) << session.status();
    const SessionBytes& held = (*session)->bytes();
    EXPECT_EQ(held.replica, 2 * 4 * (24 + 18 + 1));
    EXPECT_EQ(held.staging, 4 * (24 + 18 + 1));
    EXPECT_EQ(held.batches, 4 * 4 * (70 + 10));
    EXPECT_GE(held.forward, 4 * 70 * 6);  // the hidden layer
    EXPECT_EQ(bytes->used(), held.sum());
  }
  EXPECT_EQ(bytes->used(), 0);
}

TEST_F(ModelSessionTest, CountsWhatWasAssembledOfParts) {
  auto bytes = std::make_shared<ByteBudget>();
  const auto session =
      Open({.assembled_bytes = 5000, .probe = true, .snapshots = true, .bytes = bytes});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->bytes().staging, 5000 + 4 * (24 + 18 + 1));
  EXPECT_EQ(bytes->used(), (*session)->bytes().sum());
  const absl::Status status = Refusal({.assembled_bytes = int64_t{1} << 40,
                                       .probe = true,
                                       .snapshots = true,
                                       .bytes = std::make_shared<ByteBudget>(int64_t{1} << 30)});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a staged copy of the model"));
}

TEST_F(ModelSessionTest, IsRefusedIfItDoesNotFit) {
  auto bytes = std::make_shared<ByteBudget>((1 << 20) + 1280 + 100);
  const absl::Status status = Refusal({.probe = true, .bytes = bytes});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("copies of the model"));
  EXPECT_EQ(bytes->used(), 0);
}

// A model that is larger than the host's budget.
TEST_F(ModelSessionTest, ReservesADevicesMemoryInABudgetOfItsOwn) {
  const auto device = std::make_shared<testing::FakeDevice>();
  ReplaceDeviceRuntimes([&](at::Device) { return device; });
  const absl::Cleanup restore = [] { ReplaceDeviceRuntimes(nullptr); };
  device->SetFreeBytes(100'000);
  auto host = std::make_shared<ByteBudget>(1 << 20);
  {
    const auto session =
        Open({.probe = true, .device_reserve_bytes = 10'000, .snapshots = true, .bytes = host});
    ASSERT_TRUE(session.ok()) << session.status();
    const SessionBytes& held = (*session)->bytes();
    const SessionBudgets& budgets = (*session)->budgets();
    EXPECT_EQ(budgets.host, host);
    EXPECT_EQ(host->used(), held.small);
    EXPECT_EQ(budgets.measuring->used(), held.sum() - held.small);
    EXPECT_EQ(budgets.measuring->limit(), 90'000);
    EXPECT_EQ(budgets.copies, budgets.measuring);
    device->SetFreeBytes(40'000);
    (*session)->FitDeviceBudget();
    EXPECT_EQ(budgets.measuring->limit(), held.sum() - held.small + 30'000);
  }
  EXPECT_EQ(host->used(), 0);
  device->SetFreeBytes(12'000);
  const absl::Status refused =
      Refusal({.probe = true, .device_reserve_bytes = 10'000, .snapshots = true, .bytes = host});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("MonitorOptions.device_reserve_bytes = 10000"));
}

TEST_F(ModelSessionTest, GivesWhatWasAskedForAndNothingElse) {
  const auto offline = Open({.calibration = true, .capture = kEverything});
  ASSERT_TRUE(offline.ok()) << offline.status();
  EXPECT_EQ((*offline)->calibration().size(), 1u);
  EXPECT_NE((*offline)->calibration()[0][0].data_ptr(), options_.calibration[0][0].data_ptr());
  EXPECT_TRUE((*offline)->probe().empty());
  EXPECT_TRUE((*offline)->curvature().empty());
  EXPECT_EQ((*offline)->stream(), nullptr);
  ASSERT_EQ((*offline)->plan().layers.size(), 1u);  // the last one is the output head
  EXPECT_EQ((*offline)->plan().layers[0].name, "up");
  EXPECT_TRUE(at::equal((*offline)->replica().loaded(0), options_.live[0].tensor));

  const auto monitor = Open({.probe = true,
                             .calibration = true,
                             .curvature = CurvatureBatchesRequest{},
                             .capture = kEverything,
                             .snapshots = true});
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  EXPECT_EQ((*monitor)->probe().size(), 2u);
  EXPECT_NE((*monitor)->stream(), nullptr);
  EXPECT_EQ((*monitor)->live().entries.size(), 3u);
  (*monitor)->ReleaseLiveTensors();
  EXPECT_TRUE((*monitor)->live().entries.empty());
}

TEST_F(ModelSessionTest, TakesTheFirstProbeSequencesForCurvatureUnlessTheSubjectHasItsOwn) {
  const auto first = Open({.curvature = CurvatureBatchesRequest{}});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ((*first)->curvature().size(), 2u) << "all have fewer than 1000 losses";
  EXPECT_EQ((*first)->curvature()[1][0].size(0), 10);
  EXPECT_TRUE((*first)->probe().empty());

  const auto pieces =
      Open({.probe = true, .curvature = CurvatureBatchesRequest{.micro_batch = 20}});
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_EQ((*pieces)->curvature().size(), 5u);
  EXPECT_EQ((*pieces)->curvature()[3][0].size(0), 10);
  EXPECT_EQ((*pieces)->probe().size(), 2u);

  options_.curvature = {{Inputs(7)}, {Inputs(90)}};
  const auto own = Open({.probe = true, .curvature = CurvatureBatchesRequest{}});
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_EQ((*own)->curvature().size(), 2u);
  EXPECT_EQ((*own)->curvature()[1][0].size(0), 90);
}

TEST_F(ModelSessionTest, CutsFurtherProbeSetsFromTheEnd) {
  options_.probe.clear();
  for (int64_t i = 1; i <= 8; ++i) options_.probe.push_back({Inputs(i)});
  const auto session = Open({.probe = true, .further_probe_sets = 2});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto lengths = [](const std::vector<Batch>& batches) {
    std::vector<int64_t> rows;
    for (const Batch& batch : batches) rows.push_back(batch[0].size(0));
    return rows;
  };
  EXPECT_EQ(lengths((*session)->probe()), (std::vector<int64_t>{1, 2, 3, 4}));
  ASSERT_EQ((*session)->further_probe().size(), 2u);
  EXPECT_EQ(lengths((*session)->further_probe()[0]), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(lengths((*session)->further_probe()[1]), (std::vector<int64_t>{7, 8}));
  EXPECT_THAT(std::string(Refusal({.probe = true, .further_probe_sets = 8}).message()),
              HasSubstr("further_probe_sets = 8: needs more probe batches than that, and there "
                        "are 8"));
}

TEST_F(ModelSessionTest, NamesTheBatchesThatAreMissing) {
  const auto refused = [&](const ModelSessionOptions& needed, const std::string& why) {
    const absl::Status status = Refusal(needed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  options_.probe.clear();
  refused({.probe = true}, "no probe batches");
  refused({.curvature = CurvatureBatchesRequest{}}, "neither curvature nor probe batches");
  options_.calibration.clear();
  refused({.calibration = true}, "no calibration batches");
}

TEST_F(ModelSessionTest, RefusesWeightsThatAreNotFiniteOnlyIfAsked) {
  options_.live[0].tensor[1][1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(std::string(Refusal({.calibration = true}).message()),
              ::testing::Not(HasSubstr("not finite")));
  const absl::Status status = Refusal({.calibration = true, .require_finite = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the live model is not finite: 'up' has 1 non-finite values"));
}

TEST_F(ModelSessionTest, OpensASubjectOnce) {
  ASSERT_TRUE(Open({.calibration = true}).ok());
  const absl::Status again = ModelSession::Open(*subject_, {.calibration = true}).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.message()), HasSubstr("the subject was opened before"));
}

TEST_F(ModelSessionTest, ASubjectThatFailedBeforeItsReplicaWasBuiltMayBeOpenedAgain) {
  options_.curvature = {};
  options_.calibration = {};
  subject_ = MakeFunctionSubject(options_);  // the probe batches serve as calibration batches
  options_.live[0].tensor[0][0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_FALSE(ModelSession::Open(*subject_, {.calibration = true, .require_finite = true}).ok());
  options_.live[0].tensor[0][0] = 0;
  EXPECT_TRUE(ModelSession::Open(*subject_, {.calibration = true, .require_finite = true}).ok());
}

TEST_F(ModelSessionTest, TurnsExceptionsIntoStatuses) {
  class Throws final : public Subject {
   public:
    std::vector<NamedTensor> LiveTensors() const override {
      throw std::runtime_error("no such module");
    }
    absl::Status BuildReplica() override { return absl::OkStatus(); }
    std::vector<NamedTensor> ReplicaTensors() const override { return {}; }
    LossValues ReplicaLosses(const Batch&) override { return {}; }
    const std::vector<Batch>& probe() const override { return batches; }
    const std::vector<Batch>& calibration() const override { return batches; }
    std::vector<Batch> batches = {{at::ones({1})}};
  } subject;
  const absl::Status status = ModelSession::Open(subject, {.probe = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such module"));
}

TEST_F(ModelSessionTest, SaysThatAClosureIsOutOfMemory) {
  options_.losses = [](const TensorMap&, const Batch&) -> LossValues {
    return at::ones({int64_t{1} << 50});
  };
  const absl::Status status = Refusal({.probe = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("losses threw"));
}

TEST_F(ModelSessionTest, ReloadsTheLiveWeights) {
  const auto session = Open({.probe = true});
  ASSERT_TRUE(session.ok()) << session.status();
  options_.live[1].tensor.fill_(5);
  ASSERT_TRUE((*session)->Reload().ok());
  EXPECT_TRUE(at::equal((*session)->replica().loaded(1), options_.live[1].tensor));
  EXPECT_TRUE(at::equal((*session)->replica().table().entries[1].tensor, options_.live[1].tensor));
}

TEST_F(ModelSessionTest, RefusesToReloadOtherTensors) {
  struct Grows final : public Subject {
    std::vector<NamedTensor> LiveTensors() const override { return live; }
    absl::Status BuildReplica() override {
      for (const NamedTensor& named : live) replica.push_back({named.name, named.tensor.clone()});
      return absl::OkStatus();
    }
    std::vector<NamedTensor> ReplicaTensors() const override { return replica; }
    LossValues ReplicaLosses(const Batch&) override { return replica[0].tensor.square().sum(); }
    const std::vector<Batch>& probe() const override { return batches; }
    const std::vector<Batch>& calibration() const override { return batches; }
    std::vector<NamedTensor> live = {{"w", at::ones({2, 2})}};
    std::vector<NamedTensor> replica;
    std::vector<Batch> batches = {{at::ones({1})}};
  } subject;
  const auto session = ModelSession::Open(subject, {.probe = true});
  ASSERT_TRUE(session.ok()) << session.status();
  subject.live = {{"w", at::ones({2, 3})}};
  const absl::Status status = (*session)->Reload();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other tensors than when it was opened"));
}

}  // namespace model_session_test
}  // namespace ptqwatch::internal
