#include "models/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"

namespace ptqwatch::internal {
namespace attention_test {

at::Tensor Random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// The definition, one query at a time, in double.
std::vector<double> Expected(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             int64_t token, int64_t window) {
  const at::Tensor queries = q.to(at::kDouble), keys = k.to(at::kDouble),
                   values = v.to(at::kDouble);
  const int64_t first = window > 0 ? std::max<int64_t>(0, token - window + 1) : 0;
  std::vector<double> weights;
  double total = 0;
  for (int64_t other = first; other <= token; ++other) {
    const double score = (queries[token] * keys[other]).sum().item<double>();
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(q.size(1)))));
    total += weights.back();
  }
  std::vector<double> sum(static_cast<size_t>(v.size(1)), 0.0);
  for (int64_t other = first; other <= token; ++other) {
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += weights[static_cast<size_t>(other - first)] / total *
                values[other][static_cast<int64_t>(i)].item<double>();
    }
  }
  return sum;
}

TEST(AttentionTest, IsTheWeightedMeanOfWhatATokenMaySee) {
  const int64_t tokens = 7, dim = 4;
  const at::Tensor q = Random({2, 4, tokens, dim}, 1), k = Random({2, 2, tokens, dim}, 2),
                   v = Random({2, 2, tokens, dim}, 3);
  for (const int64_t window : {0, 1, 3, 100}) {
    const at::Tensor result = CausalAttention(q, k, v, {.scale = 0.5, .window = window});
    ASSERT_EQ(result.sizes(), at::IntArrayRef({2, tokens, 4 * dim}));
    for (int64_t batch = 0; batch < 2; ++batch) {
      for (int64_t head = 0; head < 4; ++head) {
        for (int64_t token = 0; token < tokens; ++token) {
          const std::vector<double> expected =
              Expected(q[batch][head], k[batch][head / 2], v[batch][head / 2], token, window);
          for (int64_t i = 0; i < dim; ++i) {
            EXPECT_NEAR(result[batch][token][head * dim + i].item<double>(),
                        expected[static_cast<size_t>(i)], 1e-5);
          }
        }
      }
    }
  }
}

TEST(AttentionTest, SoftCapBoundsTheScores) {
  const at::Tensor x = at::tensor({-100.0f, -1.0f, 0.0f, 3.0f, 100.0f});
  const at::Tensor capped = SoftCap(x, 5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(capped[i].item<double>(), 5 * std::tanh(x[i].item<double>() / 5), 1e-6);
  }
  // With all scores zero each token is the mean of those that it sees.
  const at::Tensor q = Random({1, 1, 6, 4}, 7), k = Random({1, 1, 6, 4}, 8);
  const at::Tensor v = Random({1, 1, 6, 4}, 9);
  const at::Tensor result = CausalAttention(q, k, v, {.scale = 9, .softcap = 1e-6});
  EXPECT_LT((result[0][5] - v[0][0].mean(0)).abs().max().item<float>(), 1e-5);
}

// A sink with the score s takes exp(s) from a token's shares.
TEST(AttentionTest, SinksTakeAShareOfEachHead) {
  const at::Tensor q = Random({1, 2, 6, 4}, 7), k = Random({1, 2, 6, 4}, 8);
  const at::Tensor v = Random({1, 2, 6, 4}, 9);
  const at::Tensor sinks = at::tensor({-1.0f, 2.0f});
  const at::Tensor without = CausalAttention(q, k, v, {.scale = 0.5});
  const at::Tensor with = CausalAttention(q, k, v, {.scale = 0.5, .sinks = sinks});
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t token = 0; token < 6; ++token) {
      double others = 0;
      for (int64_t other = 0; other <= token; ++other) {
        others += std::exp(0.5 * (q[0][head][token] * k[0][head][other]).sum().item<double>());
      }
      const double share = others / (others + std::exp(sinks[head].item<double>()));
      for (int64_t i = 4 * head; i < 4 * head + 4; ++i) {
        EXPECT_NEAR(with[0][token][i].item<double>(), share * without[0][token][i].item<double>(),
                    1e-5);
      }
    }
  }
}

// 2000^2 scores a head: a slice of four heads and one of two, against slices of one.
TEST(AttentionTest, SlicesDoNotChangeABit) {
  const int64_t tokens = 2000;
  const at::Tensor q = Random({1, 6, tokens, 4}, 4), k = Random({1, 1, tokens, 4}, 5),
                   v = Random({1, 1, tokens, 4}, 6);
  const at::Tensor together = CausalAttention(q, k, v, {.scale = 0.5});
  for (const int64_t head : {0, 3, 5}) {
    const at::Tensor alone = CausalAttention(q.narrow(1, head, 1), k, v, {.scale = 0.5});
    EXPECT_TRUE(alone.equal(together.narrow(2, 4 * head, 4)));
  }
}

}  // namespace attention_test
}  // namespace ptqwatch::internal
