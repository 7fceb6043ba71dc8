#include "session/gradient_check.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tanh.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::internal {
namespace gradient_check_test {

using ::testing::HasSubstr;

struct GradientCheckTest : ::testing::Test {
  std::string Mistake(std::function<LossValues(const TensorMap&, const Batch&)> losses) {
    const std::vector<Batch> batches = {{at::arange(8, at::kFloat).view({4, 2}) / 8}};
    const std::vector<NamedTensor> live = {{"first", at::ones({2, 2}) / 2, true},
                                           {"second", at::ones({2}), true},
                                           {"unused", at::ones({2}), true}};
    const auto subject =
        MakeFunctionSubject({.live = live, .losses = std::move(losses), .probe = batches});
    auto replica = Replica::Create(subject.get(), *MakeTensorTable(live), {&batches[0]});
    EXPECT_TRUE(replica.ok()) << replica.status();
    const std::vector<int> scope = {0, 1, 2};
    auto surface = ReplicaSurface::Create(replica->get(), scope, &batches, 4);
    EXPECT_TRUE(surface.ok()) << surface.status();
    const at::Tensor before = (*replica)->loaded(0).clone();
    const absl::Status status = CheckGradients(**replica, scope, **surface);
    EXPECT_TRUE((*replica)->table().entries[0].tensor.equal(before));
    return std::string(status.message());
  }
};

TEST_F(GradientCheckTest, TakesALossWithAGraphToWhatItUses) {
  EXPECT_EQ(Mistake([](const TensorMap& w, const Batch& b) -> LossValues {
              return at::matmul(at::tanh(at::matmul(b[0], w.at("first"))), w.at("second"));
            }),
            "");
}

TEST_F(GradientCheckTest, NamesAWeightThatIsCutOff) {
  EXPECT_THAT(Mistake([](const TensorMap& w, const Batch& b) -> LossValues {
                return at::matmul(at::tanh(at::matmul(b[0], w.at("first"))).detach(),
                                  w.at("second"));
              }),
              HasSubstr("the loss changes with 'first' but has no gradient to it"));
}

TEST_F(GradientCheckTest, SaysThatThereIsNoGraphAtAll) {
  EXPECT_THAT(Mistake([](const TensorMap& w, const Batch& b) -> LossValues {
                return at::matmul(b[0], w.at("second")).detach();
              }),
              HasSubstr("the loss has no graph to the weights"));
}

}  // namespace gradient_check_test
}  // namespace ptqwatch::internal
