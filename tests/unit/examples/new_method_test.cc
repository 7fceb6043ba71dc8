// A quantization method that this file alone defines: its row is all that a flag, a report and the
// metrics need to know it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device_quantizer.h"
#include "ptqwatch/metric_catalog.h"
#include "ptqwatch/monitor.h"
#include "quantize/layer.h"
#include "quantize/methods.h"
#include "support/recording_exporter.h"
#include "support/tiny_trainer.h"
#include "trainer_flags.h"

namespace ptqwatch {
namespace new_method_test {

using ::testing::HasSubstr;

// A weight becomes its sign times the mean magnitude of its row.
absl::StatusOr<QuantizedWeight> Sign(const internal::Layer& layer, const ExecutionContext&) {
  QuantizedWeight result;
  for (int64_t r = 0; r < layer.weight.rows; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < layer.weight.cols; ++c) sum += std::abs(layer.Row(r)[c]);
    const float mean = sum / static_cast<float>(layer.weight.cols);
    result.scale.push_back(mean);
    for (int64_t c = 0; c < layer.weight.cols; ++c) {
      const bool negative = layer.Row(r)[c] < 0;
      result.codes.push_back(negative ? 0 : 1);
      result.dequantized.push_back(negative ? -mean : mean);
    }
  }
  return result;
}

const internal::Method kSignRow = {
    .bits = 2,
    .group_size = -1,
    .bytes = [](int64_t rows, int64_t, const QuantizerSpec&) { return 4 * rows; },
    .quantize = Sign,
};
const QuantizationMethod kSign =
    internal::AddMethod({.name = "sign", .label = "sign code"}, kSignRow);

TEST(NewMethod, IsNamedAndValidatedByItsRow) {
  EXPECT_EQ(ToString(kSign), "sign");
  EXPECT_EQ(*ParseQuantizationMethod("Sign"), kSign);
  EXPECT_THAT(ParseQuantizationMethod("hqq").status().ToString(), HasSubstr("nf4 and sign"));
  EXPECT_EQ(LabelOf({kSign, 2, "int"}), "2-bit sign code");
  EXPECT_EQ(FormatOf(kSign), "int");
  EXPECT_EQ(FixedBits(kSign), 2);
  EXPECT_THAT(Validate({.method = kSign, .bits = 4}).ToString(), HasSubstr("2 for sign"));
  const QuantizerSpec spec{.method = kSign, .bits = 2};
  EXPECT_TRUE(Validate(spec).ok());
  EXPECT_EQ(Describe(spec), "sign b2");
  // It has no kernel: a monitor on a GPU quantizes on the host.
  EXPECT_FALSE(internal::DeviceQuantizer::Supports(spec));
}

TEST(NewMethod, Quantizes) {
  const std::vector<float> weight = {1, -2, 3, -0.5f, 0.25f, 0};
  const absl::StatusOr<QuantizedWeight> result = Quantize(
      {.data = weight.data(), .rows = 2, .cols = 3}, nullptr, {.method = kSign, .bits = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->dequantized, ::testing::ElementsAre(2, -2, 2, -0.25f, 0.25f, 0.25f));
}

// The samples of a metric, as "sign 2".
std::vector<std::string> LabelsOf(std::string_view name, const MetricInput& input) {
  std::vector<std::string> labels;
  for (const MetricInfo& metric : MetricCatalog()) {
    if (metric.name != name) continue;
    for (const MetricSample& sample : metric.collect(input)) {
      labels.push_back(sample.labels[0] + " " + sample.labels[1]);
    }
  }
  return labels;
}

TEST(NewMethod, IsSeenFromTheFlagToReportAndMetrics) {
  examples::TrainerFlags flags;
  CLI::App app;
  examples::AddTrainerFlags(app, &flags);
  app.parse("--methods sign,rtn --bits 3,4 --every 1 --wait on --http off --grpc off");
  MonitorOptions options = examples::MakeMonitorOptions(flags, 1);
  options.on_failure = OnFailure::kError;
  ASSERT_EQ(options.quantizers.size(), 3u);
  EXPECT_EQ(options.quantizers[0].method, kSign);

  testing::TinyTrainer trainer;
  auto recording = std::make_shared<testing::Recording>();
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
  auto monitor = Monitor::Create(trainer.MakeSubject(), options, std::move(exporters));
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  EXPECT_THAT((*monitor)->Describe(), HasSubstr("sign b2"));
  trainer.Step();
  (*monitor)->OnStep({.step = 1, .learning_rate = 1e-2});
  ASSERT_TRUE(recording->WaitForReports(1));
  const AnalyzedReport report = *recording->Reports()[0];
  ASSERT_EQ(report.report.quantization.size(), 3u);
  const QuantizationReport& entry = report.report.quantization[0];
  EXPECT_EQ(entry.method, kSign);
  EXPECT_EQ(entry.group_size, -1);
  EXPECT_EQ(entry.status, ProbeStatus::kOk) << entry.status_detail;
  EXPECT_TRUE(entry.delta_nats.has_value());
  EXPECT_TRUE(report.report.cost.contains("sign2"));

  const std::string json = ToJson(report);
  EXPECT_THAT(json, HasSubstr(R"("method":"sign")"));
  EXPECT_EQ(FromJson(json)->report.quantization[0].method, kSign);
  const MonitorStatus status;
  EXPECT_THAT(LabelsOf("ptqwatch_quantization_loss_delta_nats", {{}, status, &report}),
              ::testing::UnorderedElementsAre("sign 2", "rtn 3", "rtn 4"));
}

}  // namespace new_method_test
}  // namespace ptqwatch
