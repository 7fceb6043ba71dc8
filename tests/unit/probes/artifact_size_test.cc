// Tests what reports say of the compressed size of a quantized model.

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "probes/quantizer_report.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace artifact_size_test {

using testing::TanhNet;

Report Measure(bool artifact_size, bool tied = false) {
  TanhNet net;
  net.options.artifact_size = artifact_size;
  if (tied) net.live.push_back({"in.again", net.live[1].tensor, true});
  auto suite = net.Measure();
  EXPECT_TRUE(suite.ok()) << suite.status();
  return TanhNet::Run(**suite);
}

TEST(ArtifactSize, AddsUpTheLayersAndWhatIsNotQuantized) {
  for (const bool tied : {false, true}) {
    const Report report = Measure(true, tied);
    ASSERT_EQ(report.quantization.size(), 2u);
    for (const QuantizationReport& entry : report.quantization) {
      ASSERT_EQ(entry.status, ProbeStatus::kOk) << entry.status_detail;
      ASSERT_EQ(entry.layers.size(), 2u);  // in.weight, mid.weight
      ASSERT_TRUE(entry.layers[0].entropy_bits && entry.layers[1].entropy_bits);
      const double bits = 384 * *entry.layers[0].entropy_bits + 576 * *entry.layers[1].entropy_bits;
      EXPECT_GT(*entry.layers[0].entropy_bits, 1);
      EXPECT_LT(*entry.layers[0].entropy_bits, entry.bits);
      EXPECT_NEAR(entry.entropy_bits.value(), bits / 960, 1e-12);
      // Scales for 8 inputs each, as float32; the bias and the head, whatever names they have.
      EXPECT_EQ(entry.artifact_bytes,
                std::llround(std::ceil(bits / 8)) + 4 * 960 / 8 + 2 * (24 + 192));
    }
    EXPECT_LT(*report.quantization[0].artifact_bytes, *report.quantization[1].artifact_bytes);
  }
}

TEST(ArtifactSize, ChangesNoOtherNumber) {
  Report with = Measure(true);
  Report without = Measure(false);
  for (QuantizationReport& entry : with.quantization) {
    EXPECT_TRUE(entry.artifact_bytes);
    entry.entropy_bits.reset();
    entry.artifact_bytes.reset();
    for (LayerQuantization& layer : entry.layers) layer.entropy_bits.reset();
  }
  with.cost.clear();
  without.cost.clear();
  EXPECT_EQ(with, without);
}

std::vector<QuantizedLayerRow> Rows(const std::string& list, int count) {
  std::vector<QuantizedLayerRow> rows(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    QuantizedLayerRow& row = rows[static_cast<size_t>(i)];
    row.report.name = "moe." + list + "." + std::to_string(i) + ".w";
    row.parameters = 100;
    row.stored = {.codes = 100, .code_bits = 100.0 * (1 + i), .other_bytes = 7};
    row.report.entropy_bits = 1 + i;
  }
  return rows;
}

TEST(ArtifactSize, OfAStackIsThatOfItsLayers) {
  QuantizationReport report;
  ASSERT_TRUE(AddRows(Rows("experts", 9), 1000, report).ok());
  EXPECT_EQ(report.layers.at(0).name, "moe.experts.*.w");
  EXPECT_EQ(report.layers[0].entropy_bits, 5);
  EXPECT_EQ(report.entropy_bits, 5);
  EXPECT_EQ(report.artifact_bytes, 563 + 9 * 7 + 2 * 100);
}

TEST(ArtifactSize, CountsALayerWithoutCodesAsItIs) {
  std::vector<QuantizedLayerRow> rows = Rows("blocks", 2);
  rows[1].report.status = LayerStatus::kUnsupported;
  rows[1].parameters = 0;
  rows[1].stored.reset();
  QuantizationReport report;
  ASSERT_TRUE(AddRows(rows, 250, report).ok());
  EXPECT_EQ(report.entropy_bits, 1);
  EXPECT_EQ(report.artifact_bytes, 13 + 7 + 2 * 150);  // 12.5 bytes of codes
}

// As on a GPU, if the host lacks memory for the codes of one.
TEST(ArtifactSize, IsAbsentIfALayersIsNotKnown) {
  std::vector<QuantizedLayerRow> rows = Rows("blocks", 2);
  rows[1].stored.reset();
  QuantizationReport report;
  ASSERT_TRUE(AddRows(rows, 250, report).ok());
  EXPECT_FALSE(report.artifact_bytes);
  EXPECT_FALSE(report.entropy_bits);
}

TEST(ArtifactSize, IsAbsentIfTheQuantizerFailed) {
  QuantizationReport report;
  ASSERT_TRUE(AddRows(Rows("blocks", 2), 250, report).ok());
  ASSERT_TRUE(report.artifact_bytes);
  SetStatus(absl::DeadlineExceededError("out of time"), report);
  EXPECT_FALSE(report.artifact_bytes);
  EXPECT_FALSE(report.entropy_bits);
}

}  // namespace artifact_size_test
}  // namespace ptqwatch::internal
