// Tests the rows that reports have for stacks of experts.

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ATen/ops/zeros.h"
#include "base/strings.h"
#include "probes/quantizer_report.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace stack_rows_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kExperts = 10;

// Ten experts of 16 -> 8, each with a scaled share of the input. With a `list` other than "experts"
// they do not look like a stack.
struct Net : testing::TanhNet {
  explicit Net(const std::string& list) {
    live.clear();
    for (int i = 0; i < kExperts; ++i) {
      live.push_back({Name(list, i), testing::Waves({8, 16}, 0.2 + 0.05 * (i * 7 % 10), i), true});
    }
    losses = [list](const TensorMap& p, const Batch& b) -> LossValues {
      at::Tensor logits = at::zeros({100, 8});
      for (int i = 0; i < kExperts; ++i) {
        logits = logits + at::linear((b[0] * (1 + i)).cos(), p.at(Name(list, i))).tanh();
      }
      return at::cross_entropy_loss(logits, b[1], {}, at::Reduction::None);
    };
    options.layers.output_head = true;
    options.averaging.enabled = false;
    options.quantizers = {{.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
  }
  static std::string Name(const std::string& list, int i) {
    return StrCat("moe.", list, ".", i, ".w");
  }
};

Report Measure(Net net) {
  auto suite = net.Measure();
  EXPECT_TRUE(suite.ok()) << suite.status();
  return Net::Run(**suite);
}

TEST(StackRows, SayInOneRowWhatTheLayersSay) {
  const Report report = Measure(Net("experts"));
  const Report single = Measure(Net("others"));
  ASSERT_EQ(single.quantization[0].layers.size(), size_t{kExperts});
  ASSERT_EQ(single.quantization[0].status, ProbeStatus::kOk);
  EXPECT_EQ(report.quantization[0].delta_nats, single.quantization[0].delta_nats);
  EXPECT_EQ(report.quantization[0].coverage_ratio, single.quantization[0].coverage_ratio);
  const std::vector<LayerQuantization>& rows = report.quantization[0].layers;
  ASSERT_EQ(rows.size(), 1 + 3u);
  const LayerQuantization& stack = rows[0];
  EXPECT_EQ(stack.name, "moe.experts.*.w");
  EXPECT_EQ(stack.stacked, kExperts);
  EXPECT_EQ(stack.stacked_ok, kExperts);
  EXPECT_EQ(stack.status, LayerStatus::kOk);
  std::vector<LayerQuantization> layers = single.quantization[0].layers;
  LayerQuantization sums;
  sums.gradient_term_nats = sums.curvature_term_nats = sums.damp = 0;
  sums.dead_columns = 0;
  for (const LayerQuantization& layer : layers) {
    sums.tokens += layer.tokens;
    *sums.dead_columns += *layer.dead_columns;
    *sums.gradient_term_nats += *layer.gradient_term_nats;
    *sums.curvature_term_nats += *layer.curvature_term_nats;
    sums.damp = std::max(*sums.damp, *layer.damp);
  }
  EXPECT_EQ(stack.tokens, sums.tokens);
  EXPECT_EQ(stack.dead_columns, sums.dead_columns);
  EXPECT_EQ(stack.damp, sums.damp);
  EXPECT_NEAR(*stack.gradient_term_nats, *sums.gradient_term_nats, 1e-12);
  EXPECT_NEAR(*stack.curvature_term_nats, *sums.curvature_term_nats, 1e-12);
  std::sort(layers.begin(), layers.end(), [](const auto& a, const auto& b) {
    return *a.output_error_ratio > *b.output_error_ratio;
  });
  for (size_t i = 0; i < 3; ++i) {
    LayerQuantization expected = layers[i];
    expected.name.replace(expected.name.find("others"), 6, "experts");
    EXPECT_EQ(rows[1 + i], expected);
  }
  EXPECT_NEAR(*stack.output_error_median_ratio,
              (*layers[4].output_error_ratio + *layers[5].output_error_ratio) / 2, 1e-15);
  EXPECT_NEAR(*stack.output_error_p90_ratio,
              0.9 * *layers[1].output_error_ratio + 0.1 * *layers[0].output_error_ratio, 1e-15);
  EXPECT_LT(*stack.output_error_p10_ratio, *layers[8].output_error_ratio);
  EXPECT_GT(*stack.output_error_ratio, *layers[9].output_error_ratio);
  EXPECT_LT(*stack.output_error_ratio, *layers[0].output_error_ratio);
  EXPECT_GT(*stack.rtn_output_error_ratio, *stack.output_error_ratio);
}

TEST(StackRows, WeightErrorsByTheirOutputs) {
  std::vector<QuantizedLayerRow> rows(kExperts);
  for (int i = 0; i < kExperts; ++i) {
    rows[i].report.name = Net::Name("experts", i);
    rows[i].report.status = i < 2 ? LayerStatus::kTooFewTokens : LayerStatus::kOk;
    rows[i].report.tokens = i == 0 ? 1 : 111;
    rows[i].report.output_error_ratio = i == 0 ? 0.8 : 0.1;
    rows[i].output_energy = 2;
  }
  rows[9].report.output_error_ratio = NAN;
  QuantizationReport report;
  ASSERT_TRUE(AddRows(rows, 1000, report).ok());
  const LayerQuantization& stack = report.layers.at(0);
  EXPECT_NEAR(*stack.output_error_ratio, (0.8 * 1 + 0.1 * 888) / 889, 1e-15);
  EXPECT_EQ(stack.tokens, 1 + 9 * 111);
  EXPECT_EQ(stack.stacked_ok, 8);
  EXPECT_EQ(stack.status, LayerStatus::kTooFewTokens);
  EXPECT_EQ(report.layers.at(1).name, Net::Name("experts", 0));
}

TEST(StackRows, AddUpTheTrace) {
  const Report report = Measure(Net("experts"));
  const Report single = Measure(Net("others"));
  ASSERT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_EQ(report.curvature->trace, single.curvature->trace);
  EXPECT_EQ(report.curvature->weighted_trace, single.curvature->weighted_trace);
  const std::vector<LayerCurvature>& rows = report.curvature->layers;
  ASSERT_EQ(rows.size(), 1 + 3u);
  EXPECT_EQ(rows[0].name, "moe.experts.*.w");
  EXPECT_EQ(rows[0].stacked, kExperts);
  EXPECT_EQ(rows[0].parameters, kExperts * 8 * 16);
  EXPECT_NEAR(*rows[0].trace, *single.curvature->trace, 1e-9 * *single.curvature->trace);
  EXPECT_NEAR(*rows[0].trace_stderr, *single.curvature->trace_stderr,
              1e-9 * *single.curvature->trace_stderr);
  double squares = 0;
  std::vector<double> traces;
  for (const LayerCurvature& layer : single.curvature->layers) {
    squares += *layer.weight_mean_square / kExperts;
    traces.push_back(*layer.trace);
  }
  EXPECT_NEAR(*rows[0].weight_mean_square, squares, 1e-12);
  std::sort(traces.rbegin(), traces.rend());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[1 + i].trace, traces[i]);
    EXPECT_FALSE(rows[1 + i].stacked);
  }
}

TEST(StackRows, AreLinesOfTheDescription) {
  Net net("experts");
  auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const std::string text = (*suite)->Needs(int64_t{1} << 40)[0].text;
  EXPECT_THAT(text, HasSubstr("16 -> 8, 10 of them\n"));
  EXPECT_EQ(text.find("experts.3"), std::string::npos);
}

}  // namespace stack_rows_test
}  // namespace ptqwatch::internal
