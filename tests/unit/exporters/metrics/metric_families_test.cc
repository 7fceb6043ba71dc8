#include "metrics/metric_families.h"

#include <stdio.h>
#include <sys/wait.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/metric_page.h"
#include "prometheus/text_serializer.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace metric_families_test {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SampleLayer;
using testing::SampleQuantization;
using testing::SampleReport;

// All fields are set, so that every metric of the catalogue has a sample.
MonitorStatus FullStatus() {
  MonitorStatus status = testing::SampleStatus();
  status.stall_buckets = {0, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1};
  status.stall_seconds_total = 6.5;
  status.cooldown.state = CooldownState::kSimulating;
  status.cooldown.steps_done = 450;
  status.cooldown.steps_all = 3000;
  status.slice.state = SliceState::kDone;
  status.server.state = ServerState::kServing;
  status.ranks = {{.rank = 3, .health = Health::kOk, .snapshot_step = 16000, .reports_total = 20}};
  status.replicas = {.compared_step = 16000,
                     .diverged = true,
                     .diverged_step = 15200,
                     .parameter = "blocks.0.weight",
                     .minority = "3"};
  return status;
}

class MetricFamiliesTest : public ::testing::Test {
 protected:
  std::string Page(int max_layers = 64) const {
    return MetricPage(max_layers)
        .Render({{.run = "", .input = {run_, status_, &report_, 1.7e9}}}, MetricFormat::kText);
  }
  // "layer method bits" -> value of the per-layer metric.
  std::map<std::string, double> Layers(int max_layers) const {
    std::map<std::string, double> layers;
    ShownLayers shown(max_layers);
    for (const MetricInfo& info : MetricCatalog()) {
      if (info.name != "ptqwatch_layer_quantization_error_ratio") continue;
      const auto family =
          MakeMetricFamily(info, {{.run = "", .input = {run_, status_, &report_}}}, shown);
      for (const auto& metric : family.metric) {
        const std::string key =
            metric.label[0].value + " " + metric.label[1].value + " " + metric.label[2].value;
        EXPECT_TRUE(layers.emplace(key, metric.gauge.value).second) << key;
      }
    }
    return layers;
  }

  RunInfo run_;
  MonitorStatus status_ = FullStatus();
  AnalyzedReport report_ = SampleReport();
};

struct Promtool {
  int exit_code = -1;
  std::string output;
};
Promtool CheckMetrics(const std::string& page) {
  const testing::TempDir dir;
  testing::WriteFile(dir.File("page"), page);
  Promtool result;
  // Uses the promtool of ./setup, else the one on the PATH.
  constexpr char kPath[] = R"(PATH="${XDG_CACHE_HOME:-$HOME/.cache}/ptqwatch/servers:$PATH")";
  const std::string command =
      std::string(kPath) + " promtool check metrics <'" + dir.File("page") + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[256];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) result.output += buffer;
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

TEST_F(MetricFamiliesTest, GivePageThatPromtoolAccepts) {
  const std::string page = Page();
  for (const MetricInfo& info : MetricCatalog()) {
    ASSERT_THAT(page, HasSubstr("# TYPE " + std::string(info.name) + " "))
        << "a metric without a sample is not checked";
  }
  const Promtool result = CheckMetrics(page);
  EXPECT_EQ(result.exit_code, 0) << "./setup keeps a promtool";
  EXPECT_EQ(result.output, "");
}

TEST_F(MetricFamiliesTest, AreFoundWantingByPromtoolWhenAHelpIsMissing) {
  EXPECT_THAT(CheckMetrics("# TYPE ptqwatch_x gauge\nptqwatch_x 1\n").output,
              HasSubstr("no help text"));
}

TEST_F(MetricFamiliesTest, GiveAPageThatPromtoolAcceptsWhateverTheNamesHold) {
  std::string odd = "quote\" back\\slash new\nline tab\t nul";
  odd.push_back('\0');
  odd += "\xff\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 cut \xe2\x82";
  report_.report.quantization[0].layers[0].name = odd;
  report_.report.quantization[0].layers[1].name = "\xfe";
  run_.run_id = odd;
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr(R"(layer="quote\" back\\slash new\nline tab\\x09 nul\\x00\\xFF\\xC0)"
                              R"(\\xAF \\xED\\xA0\\x80 \\xF4\\x90\\x80\\x80 cut \\xE2\\x82")"));
  EXPECT_THAT(page, HasSubstr(R"(layer="\\xFE")"));
  const Promtool result = CheckMetrics(page);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
}

TEST_F(MetricFamiliesTest, KeepLabelsThatAreUtf8) {
  report_.report.quantization[0].layers[0].name = "sch\u00f6n \u20ac \U0001F600 \u07ff";
  EXPECT_THAT(Page(), HasSubstr("layer=\"sch\u00f6n \u20ac \U0001F600 \u07ff\""));
}

TEST_F(MetricFamiliesTest, ShowTypeHelpAndValue) {
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("# TYPE ptqwatch_steps_total counter\nptqwatch_steps_total 4010\n"));
  EXPECT_THAT(page, HasSubstr("# HELP ptqwatch_learning_rate Learning rate of the last step.\n"
                              "# TYPE ptqwatch_learning_rate gauge\n"
                              "ptqwatch_learning_rate 0.0025\n"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_quantization_loss_delta_nats{method=\"gptq\",bits=\"3\","
                              "format=\"int\"} 0.208\n"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_verdict{state=\"decay_degradation\"} 1\n"));
  EXPECT_EQ(page.back(), '\n');
}

TEST_F(MetricFamiliesTest, ShowStallsInCumulativeBuckets) {
  const std::string page = Page();
  for (const char* line :
       {"_bucket{le=\"1e-06\"} 0\n", "_bucket{le=\"0.0001\"} 5\n", "_bucket{le=\"0.0005\"} 5\n",
        "_bucket{le=\"0.001\"} 12\n", "_bucket{le=\"5\"} 12\n", "_bucket{le=\"+Inf\"} 13\n",
        "_count 13\n", "_sum 6.5\n"}) {
    EXPECT_THAT(page, HasSubstr("ptqwatch_training_stall_seconds" + std::string(line)));
  }
}

TEST_F(MetricFamiliesTest, LeaveOutWhatHasNoSample) {
  status_ = {};
  const std::string page =
      MetricPage(64).Render({{.run = "", .input = {run_, status_, nullptr}}}, MetricFormat::kText);
  EXPECT_THAT(page, Not(HasSubstr("quantization_error_ratio")));
  EXPECT_THAT(page, Not(HasSubstr("ptqwatch_learning_rate")));
  EXPECT_THAT(page, HasSubstr("ptqwatch_snapshots_total{result=\"taken\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_training_stall_seconds_count 0\n"));
  const Promtool result = CheckMetrics(page);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
}

TEST_F(MetricFamiliesTest, FoldLayersBeyondTheCap) {
  // The worst layer is c under gptq and a under rtn; both are shown for both methods.
  QuantizationReport gptq = SampleQuantization(QuantizationMethod::kGptq, 3, 0.2);
  gptq.layers = {SampleLayer("a", 0.01), SampleLayer("b", 0.02), SampleLayer("c", 0.40),
                 SampleLayer("d", 0.06)};
  QuantizationReport rtn = SampleQuantization(QuantizationMethod::kRtn, 3, 0.3);
  rtn.layers = {SampleLayer("a", 0.50), SampleLayer("b", 0.10), SampleLayer("c", 0.20),
                SampleLayer("d", 0.12)};
  report_.report.quantization = {gptq, rtn};
  EXPECT_THAT(Layers(2),
              ElementsAre(std::pair("_overflow gptq 3", 0.04), std::pair("_overflow rtn 3", 0.11),
                          std::pair("a gptq 3", 0.01), std::pair("a rtn 3", 0.50),
                          std::pair("c gptq 3", 0.40), std::pair("c rtn 3", 0.20)));
  EXPECT_EQ(Layers(4).size(), 8u);
  EXPECT_EQ(Layers(0).size(), 2u);
  EXPECT_NEAR(Layers(0).at("_overflow rtn 3"), 0.23, 1e-12);
}

TEST_F(MetricFamiliesTest, HaveStacksWithoutTheirWorstLayers) {
  report_.report.quantization.resize(1);
  report_.report.quantization[0].layers = {SampleLayer("a", 0.1), SampleLayer("experts.*.up", 0.2),
                                           SampleLayer("experts.7.up", 0.3),
                                           SampleLayer("few.experts.1.up", 0.05)};
  EXPECT_THAT(Layers(10),
              ElementsAre(std::pair("a gptq 3", 0.1), std::pair("experts.*.up gptq 3", 0.2),
                          std::pair("few.experts.1.up gptq 3", 0.05)));
}

TEST_F(MetricFamiliesTest, ShowOneOverflowSeriesEvenIfALayerIsCalledThat) {
  report_.report.quantization.resize(1);
  report_.report.quantization[0].layers = {SampleLayer("_overflow", 0.9), SampleLayer("a", 0.1),
                                           SampleLayer("b", 0.2)};
  EXPECT_THAT(Layers(1),
              ElementsAre(std::pair("_overflow gptq 3", 0.5), std::pair("b gptq 3", 0.2)));
  EXPECT_EQ(Layers(2).size(), 3u);
  EXPECT_EQ(Layers(64).size(), 3u);
}

TEST_F(MetricFamiliesTest, GiveOpenMetrics) {
  const std::string page = MetricPage(64).Render(
      {{.run = "", .input = {run_, status_, &report_, 1.7e9}}}, MetricFormat::kOpenMetrics);
  EXPECT_THAT(page, HasSubstr("\n# TYPE ptqwatch_steps counter\nptqwatch_steps_total 4010\n"));
  EXPECT_THAT(page, HasSubstr("\n# TYPE ptqwatch_run info\nptqwatch_run_info{"));
  EXPECT_THAT(page, HasSubstr("are averaged in layer=\\\"_overflow\\\".\n"));
  EXPECT_THAT(page, HasSubstr("\n# TYPE ptqwatch_training_stall_seconds histogram\n"));
  EXPECT_THAT(page, EndsWith("\n# EOF\n"));
  // All other samples equal those of the text format.
  const auto samples = [](const std::string& text) {
    std::vector<std::string> lines;
    for (const auto line : absl::StrSplit(text, '\n')) {
      if (!line.empty() && line[0] != '#') lines.emplace_back(line);
    }
    return lines;
  };
  EXPECT_EQ(samples(page), samples(Page()));
}

TEST_F(MetricFamiliesTest, AreInTheFormatThatIsAskedFor) {
  EXPECT_EQ(MetricFormatFor(""), MetricFormat::kText);
  EXPECT_EQ(MetricFormatFor("text/plain;version=0.0.4;q=1,*/*;q=0.1"), MetricFormat::kText);
  EXPECT_EQ(MetricFormatFor("Application/OpenMetrics-text; version=1.0.0,text/plain;q=0.5"),
            MetricFormat::kOpenMetrics);
}

TEST(MetricPage, WritesLayersOncePerReport) {
  const RunInfo run;
  const MonitorStatus status;
  AnalyzedReport report = SampleReport();
  MetricPage page(64);
  const auto render = [&] {
    return page.Render({{.run = "", .input = {run, status, &report}}}, MetricFormat::kText);
  };
  EXPECT_THAT(
      render(),
      HasSubstr("{layer=\"blocks.0.weight\",method=\"gptq\",bits=\"3\",format=\"int\"} 0.02\n"));
  report.report.quantization[0].layers[0].output_error_ratio = 0.5;
  EXPECT_THAT(
      render(),
      HasSubstr("{layer=\"blocks.0.weight\",method=\"gptq\",bits=\"3\",format=\"int\"} 0.02\n"));
  ++report.report.sequence;
  EXPECT_THAT(
      render(),
      HasSubstr("{layer=\"blocks.0.weight\",method=\"gptq\",bits=\"3\",format=\"int\"} 0.5\n"));
}

TEST(LayerText, IsWhatTheLibraryWrites) {
  const MonitorStatus status = FullStatus();
  const RunInfo info;
  AnalyzedReport report = SampleReport();
  auto& layers = report.report.quantization[0].layers;
  const double values[] = {1.0 / 3,      0,        -2.5e-17, 1e300, 16, 123456789.25,
                           std::nan(""), HUGE_VAL, -HUGE_VAL};
  for (const double value : values) {
    layers.push_back(
        SampleLayer(StrCat("layer \"", layers.size(), "\" \\ \n\x01\xff\xc3\xa9"), 0.5));
    layers.back().output_error_ratio = value;
  }
  const std::vector<RunMetrics> runs = {{"a \"run\"", {info, status, &report}},
                                        {"", {info, status, &report}},
                                        {"none", {info, status, nullptr}}};
  int compared = 0;
  for (const MetricInfo& metric : MetricCatalog()) {
    if (!HasLayers(metric)) continue;
    for (const int max_layers : {64, 2}) {
      ShownLayers ours(max_layers), theirs(max_layers);
      const auto family = MakeMetricFamily(metric, runs, theirs);
      const std::string expected =
          family.metric.empty() ? "" : prometheus::TextSerializer().Serialize({family});
      EXPECT_EQ(LayerText(metric, runs, ours), expected);
      compared += expected.empty() ? 0 : 1;
    }
  }
  EXPECT_GE(compared, 4);
}

TEST(ShownLayers, KeepTheirPlacesIfTheyAreClose) {
  ShownLayers shown(4);
  const auto choose = [&](std::vector<std::string> ranked) {
    return shown.Choose("", "metric", ranked);
  };
  EXPECT_THAT(choose({"a", "b", "c", "d", "e", "f"}), ElementsAre("a", "b", "c", "d"));
  // d stays although it is one rank behind, because e is not far enough ahead.
  EXPECT_THAT(choose({"a", "b", "c", "e", "d", "f"}), ElementsAre("a", "b", "c", "d"));
  // Two ranks behind, d is replaced.
  EXPECT_THAT(choose({"a", "b", "c", "e", "f", "d"}), ElementsAre("a", "b", "c", "e"));
  // A layer far ahead gets its series at once.
  EXPECT_THAT(choose({"f", "a", "b", "c", "e"}), ElementsAre("a", "b", "c", "f"));
  EXPECT_THAT(choose({"a"}), ElementsAre("a"));
  // Each run and metric has its own list.
  EXPECT_THAT(shown.Choose("other", "metric", {"x"}), ElementsAre("x"));
  EXPECT_THAT(ShownLayers(0).Choose("", "metric", {"x"}), ElementsAre());
}

}  // namespace metric_families_test
}  // namespace ptqwatch::internal
