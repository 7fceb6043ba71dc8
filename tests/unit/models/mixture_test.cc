#include "models/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/ops/tensor.h"

namespace ptqwatch::internal {
namespace mixture_test {

constexpr float kRow[] = {0.5f, 2.0f, -1.0f, 1.0f};

// Of three rows: the first prefers experts 1 and 3, the second 3 and 1, the third 1 and 0.
at::Tensor ThreeRows() {
  return at::tensor({kRow[0], kRow[1], kRow[2], kRow[3],  //
                     kRow[0], kRow[3], kRow[2], kRow[1],  //
                     kRow[3], kRow[1], kRow[2], kRow[0]})
      .view({3, 4});
}

std::vector<int64_t> Rows(const Routing& routing, int64_t expert) {
  const at::Tensor rows = routing.RowsOf(expert).contiguous();
  return {rows.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>() + rows.numel()};
}

double Exp(float x) { return std::exp(static_cast<double>(x)); }

TEST(Routing, SendsRowsToTheirGreatestExpertsFirstChoicesFirst) {
  const Routing routing({.experts = 4, .chosen = 2}, ThreeRows());
  EXPECT_EQ(Rows(routing, 0), std::vector<int64_t>({2}));
  EXPECT_EQ(Rows(routing, 1), std::vector<int64_t>({0, 2, 1}));
  EXPECT_EQ(Rows(routing, 2), std::vector<int64_t>());
  EXPECT_EQ(Rows(routing, 3), std::vector<int64_t>({1, 0}));
  EXPECT_EQ(routing.WeightsOf(2).sizes(), at::IntArrayRef({0, 1}));
}

TEST(Routing, WeighsByTheRouterOfTheFamily) {
  double all = 0;
  for (const float logit : kRow) all += Exp(logit);
  const double chosen = Exp(kRow[1]) + Exp(kRow[3]);
  for (const auto& [config, sum] : std::vector<std::pair<MixtureConfig, double>>{
           {{.experts = 4, .chosen = 2}, all},
           {{.experts = 4, .chosen = 2, .normalized = true}, chosen},
           {{.experts = 4, .chosen = 2, .router = RouterKind::kSoftmaxOfChosen}, chosen}}) {
    const Routing routing(config, ThreeRows());
    // Row 0, then row 1: its first and its second choice.
    EXPECT_NEAR(routing.WeightsOf(1)[0].item<double>(), Exp(kRow[1]) / sum, 1e-6);
    EXPECT_NEAR(routing.WeightsOf(1)[2].item<double>(), Exp(kRow[3]) / sum, 1e-6);
    EXPECT_NEAR(routing.WeightsOf(3)[1].item<double>(), Exp(kRow[3]) / sum, 1e-6);
  }
}

}  // namespace mixture_test
}  // namespace ptqwatch::internal
