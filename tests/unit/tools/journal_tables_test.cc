#include "journal_tables.h"

#include <algorithm>
#include <string>

#include "captured_terminal.h"
#include "commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace journal_tables_test {

using testing::CapturedTerminal;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::TempDir;
using testing::WriteFile;

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

AnalyzedReport ThreeLayers() {
  AnalyzedReport analyzed;
  analyzed.report.step = 7;
  QuantizationReport& gptq = analyzed.report.quantization.emplace_back();
  gptq.method = QuantizationMethod::kGptq;
  gptq.bits = 3;
  gptq.layers.resize(3);
  for (size_t i = 0; i < 3; ++i) {
    gptq.layers[i].name = std::string(1, static_cast<char>('a' + i));
    gptq.layers[i].output_error_ratio = 0.01 * static_cast<double>(i + 1);
  }
  return analyzed;
}

TEST(HistoryCsv, HasACellForEachColumn) {
  const AnalyzedReport report = testing::SampleReport();
  const size_t columns = Cells(HistoryCsvHeader()).size();
  const std::vector<std::string> lines = HistoryCsv(report);
  ASSERT_THAT(lines, SizeIs(report.report.quantization.size()));
  for (const std::string& line : lines) EXPECT_THAT(Cells(line), SizeIs(columns)) << line;
  AnalyzedReport none;
  ASSERT_THAT(HistoryCsv(none), SizeIs(1));
  EXPECT_THAT(Cells(HistoryCsv(none)[0]), SizeIs(columns));
}

TEST(HistoryCsv, GivesTheDefaultFormatOfAReportThatNamesNone) {
  AnalyzedReport report = testing::SampleReport();
  report.report.quantization.resize(1);
  report.report.quantization[0].format.reset();
  report.report.branch = "stage 2";
  const auto cell = [&](const std::string& name) {
    const std::vector<std::string> names = Cells(HistoryCsvHeader());
    const auto found = std::find(names.begin(), names.end(), name);
    return Cells(HistoryCsv(report)[0]).at(static_cast<size_t>(found - names.begin()));
  };
  EXPECT_EQ(cell("branch"), "stage 2");
  EXPECT_EQ(cell("format"), "int");
  EXPECT_EQ(cell("noise_delta_nats"), "0.031");
  EXPECT_EQ(cell("noise_delta_stderr_nats"), "0.0015");
  EXPECT_EQ(cell("entropy_bits"), "2.625");
  EXPECT_EQ(cell("artifact_bytes"), "12000000");
  EXPECT_EQ(cell("bytes_per_token"), "3.25");
  report.report.quantization[0].format = "mxfp4";
  EXPECT_EQ(cell("format"), "mxfp4");
}

TEST(LayersOf, SortsByOutputErrorIfNoContributionIsKnown) {
  std::vector<std::string> names;
  for (const LayerRow& row : LayersOf(ThreeLayers())) names.push_back(row.name);
  EXPECT_THAT(names, ElementsAre("c", "b", "a"));
}

TEST(LayersOf, SortsByContribution) {
  AnalyzedReport analyzed = ThreeLayers();
  for (size_t i = 0; i < 3; ++i) {
    analyzed.report.quantization[0].layers[i].gradient_term_nats = 0.1;
    analyzed.report.quantization[0].layers[i].curvature_term_nats = i == 1 ? 1.0 : 0.01;
  }
  const std::vector<LayerRow> layers = LayersOf(analyzed);
  EXPECT_EQ(layers[0].name, "b");
  EXPECT_DOUBLE_EQ(*layers[0].contribution, 1.1);
}

TEST(LayersOf, PutsLayersWithoutAContributionLast) {
  AnalyzedReport analyzed = ThreeLayers();
  analyzed.report.quantization[0].layers[0].curvature_term_nats = 1e-6;
  analyzed.report.quantization[0].layers[0].gradient_term_nats = 0;
  EXPECT_EQ(LayersOf(analyzed)[0].name, analyzed.report.quantization[0].layers[0].name);
}

TEST(LayerTable, ShowsTheWorst) {
  EXPECT_THAT(LayerTable(ThreeLayers(), 2), EndsWith("\n\nlayer  loss, nats  trace  gptq3\n"
                                                     "c               -      -  3.00%\n"
                                                     "b               -      -  2.00%\n"));
}

TEST(LayerTable, ShowsHowManyLayersShareARow) {
  AnalyzedReport analyzed = ThreeLayers();
  analyzed.report.quantization[0].layers[2].stacked = 128;
  EXPECT_THAT(LayerTable(analyzed, 1), EndsWith("c (128)           -      -  3.00%\n"));
}

TEST(LayerTable, ShowsTheSizeOfTheCodesIfItWasMeasured) {
  AnalyzedReport analyzed = ThreeLayers();
  analyzed.report.quantization[0].layers[2].entropy_bits = 2.4375;
  const std::string table = LayerTable(analyzed, 2);
  EXPECT_THAT(table, HasSubstr("\nbits: entropy of the layer's codes"));
  EXPECT_THAT(table, EndsWith("\n\nlayer  loss, nats  trace  bits  gptq3\n"
                              "c               -      -  2.44  3.00%\n"
                              "b               -      -     -  2.00%\n"));
}

TEST(LayerTable, SaysHowManyOfAStackWereNotCalibrated) {
  AnalyzedReport analyzed = ThreeLayers();
  LayerQuantization& stack = analyzed.report.quantization[0].layers[2];
  stack.tokens = 4096;
  stack.stacked = 64;
  stack.stacked_ok = 61;
  stack.status = LayerStatus::kTooFewTokens;
  EXPECT_THAT(LayerTable(analyzed, 3), HasSubstr("4096 (3 of 64 not ok)"));
  stack.stacked_ok = 64;
  EXPECT_THAT(LayerTable(analyzed, 3), Not(HasSubstr("not ok")));
}

TEST(LayerTable, ShowsTheTokensOfLayersThatMetDifferentNumbers) {
  AnalyzedReport analyzed = ThreeLayers();
  std::vector<LayerQuantization>& layers = analyzed.report.quantization[0].layers;
  for (LayerQuantization& layer : layers) layer.tokens = 4096;
  EXPECT_THAT(LayerTable(analyzed, 1), Not(HasSubstr("tokens")));
  layers[2].tokens = 9;
  layers[2].status = LayerStatus::kTooFewTokens;
  const std::string table = LayerTable(analyzed, 2);
  EXPECT_THAT(table, HasSubstr("\ntokens: that the layer met in calibration"));
  EXPECT_THAT(table, EndsWith("\n\nlayer  loss, nats  trace       tokens  gptq3\n"
                              "c               -      -  9 (too few)  3.00%\n"
                              "b               -      -         4096  2.00%\n"));
}

TEST(LayerTable, SaysWhatItsColumnsAre) {
  AnalyzedReport analyzed = ThreeLayers();
  EXPECT_THAT(LayerTable(analyzed, 2),
              StartsWith("step 7, 2 of 3 layers, sorted by the error of their output under gptq3\n"
                         "loss: contribution of the layer, to second order; trace: "));
  for (LayerQuantization& layer : analyzed.report.quantization[0].layers) {
    layer.gradient_term_nats = layer.curvature_term_nats = 0.1;
  }
  EXPECT_THAT(
      LayerTable(analyzed, 20),
      StartsWith("step 7, 3 of 3 layers, sorted by their contribution to the loss of gptq3\n"));
  analyzed.report.quantization[0].prediction_detail = "the prediction is in error";
  const std::string unsure = LayerTable(analyzed, 20);
  EXPECT_THAT(unsure, StartsWith("step 7, 3 of 3 layers, sorted by the error of their output"));
  EXPECT_THAT(unsure, EndsWith("\nno loss by layer: the prediction is in error\n"));
}

TEST(LayerCsv, HasACellForEachColumn) {
  AnalyzedReport analyzed = testing::SampleReport();
  for (const bool mx : {true, false}) {
    const std::vector<std::string> lines = LayerCsv(analyzed);
    ASSERT_THAT(lines, SizeIs(5));
    EXPECT_THAT(lines[0],
                EndsWith(",format,dead_zone_ratio,grid_noise_ratio,scale_bias_ratio,"
                         "accumulated_error_ratio,stacked,stacked_ok,output_error_p10_ratio,"
                         "output_error_median_ratio,output_error_p90_ratio,tokens,status,"
                         "entropy_bits"));
    EXPECT_THAT(lines[1],
                EndsWith(mx ? ",int,0.001,0.005,-5e-04,0.0125,16,15,0.01,0.02,0.04,8192,ok,2.62"
                            : ",int,,0.005,,0.0125,16,15,0.01,0.02,0.04,8192,ok,2.62"));
    for (const std::string& line : lines) {
      EXPECT_THAT(Cells(line), SizeIs(Cells(lines[0]).size()));
    }
    analyzed.report.quantization[0].layers[0].dead_zone_ratio.reset();
    analyzed.report.quantization[0].layers[0].scale_bias_ratio.reset();
  }
}

TEST(RunHistory, PrintsWhatIsAskedFor) {
  const TempDir folder;
  const std::string path = folder.File("journal.jsonl");
  AnalyzedReport report = testing::SampleReport();
  const std::string first = ToJson(report);
  ++report.report.sequence;
  report.report.step += 100;
  WriteFile(path, first + "\n" + ToJson(report) + "\ndamaged\n");
  CapturedTerminal csv;
  EXPECT_EQ(RunHistory({.journal = path, .csv = true}, csv.get()), 0);
  EXPECT_THAT(csv.out(), StartsWith(HistoryCsvHeader() + "\n"));
  EXPECT_THAT(csv.error(), HasSubstr("skipped 1 unreadable line"));
  CapturedTerminal later;
  EXPECT_EQ(
      RunHistory({.journal = path, .json = true, .since = report.report.sequence - 1}, later.get()),
      0);
  EXPECT_THAT(later.out(), HasSubstr("\"step\":" + std::to_string(report.report.step)));
  EXPECT_THAT(later.out(), ::testing::Not(HasSubstr(first)));
}

TEST(RunLayers, NamesAStepWithoutLayers) {
  const TempDir folder;
  const std::string path = folder.File("journal.jsonl");
  WriteFile(path, ToJson(testing::SampleReport()) + "\n");
  CapturedTerminal terminal;
  EXPECT_EQ(RunLayers({.journal = path, .step = 1}, terminal.get()), kExitFailed);
  EXPECT_THAT(terminal.error(), HasSubstr("no report of step 1 (--step) has layers"));
}

}  // namespace journal_tables_test
}  // namespace ptqwatch::internal
