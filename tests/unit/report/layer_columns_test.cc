#include "report/layer_columns.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace layer_columns_test {

using nlohmann::json;
using ::testing::HasSubstr;

AnalyzedReport WithLayers(std::vector<LayerQuantization> layers) {
  AnalyzedReport report;
  report.report.quantization.emplace_back().layers = std::move(layers);
  return report;
}

TEST(LayerColumns, SayWhatRowsSay) {
  const AnalyzedReport report = testing::SampleReport();
  const std::string line = ToColumnJson(report);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = FromJson(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, report);
  EXPECT_EQ(ToColumnJson(*read), line);
}

TEST(LayerColumns, HaveNamesOnceAndSharedValuesOnce) {
  LayerQuantization a, b;
  a.name = "a";
  a.damp = 0.01;
  a.tokens = b.tokens = 8;
  a.status = b.status = LayerStatus::kOk;
  b.name = "b";
  AnalyzedReport report = WithLayers({a, b});
  std::vector<LayerCurvature>& blocks = report.report.curvature.emplace().layers;
  blocks.resize(2);
  blocks[0].name = "c";
  blocks[0].parameters = 6;
  blocks[1].name = "b";
  const json line = json::parse(ToColumnJson(report));
  EXPECT_EQ(line.at("layer_names"), json::parse(R"(["a", "b", "c"])"));
  EXPECT_EQ(line.at("quantization").at(0).at("layers_columns"),
            json::parse(R"({"name": 2, "damp": [0.01, null], "tokens": 8, "skipped_rows": 0,
                            "status": "ok"})"));
  EXPECT_EQ(line.at("curvature").at("layers_columns"),
            json::parse(R"({"name": [2, 1], "parameters": [6, 0]})"));
  EXPECT_FALSE(line.at("quantization").at(0).contains("layers"));
  const auto read = FromJson(line.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, report);
}

TEST(LayerColumns, NameAnEqualColumn) {
  std::vector<LayerQuantization> layers(2);
  layers[0].name = "a";
  layers[0].output_error_ratio = layers[0].rtn_output_error_ratio = 0.5;
  layers[1].name = "b";
  layers[1].output_error_ratio = layers[1].rtn_output_error_ratio = 0.25;
  const AnalyzedReport report = WithLayers(layers);
  const std::string line = ToColumnJson(report);
  EXPECT_THAT(line, HasSubstr(R"("rtn_output_error_ratio":"output_error_ratio")"));
  const auto read = FromJson(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, report);
}

TEST(LayerColumns, HaveThreeDigits) {
  LayerQuantization layer;
  layer.name = "a";
  layer.output_error_ratio = 0.000123456789;
  layer.tokens = 123456789;
  const std::string line = ToColumnJson(WithLayers({layer}));
  EXPECT_THAT(line, HasSubstr("\"output_error_ratio\":0.000123,"));
  EXPECT_THAT(line, HasSubstr("\"tokens\":123456789"));
}

TEST(LayerColumns, AreNotReadIfTheyDoNotFit) {
  const auto error = [](std::string_view names, std::string_view columns) {
    return StrCat(FromJson(StrCat(R"({"layer_names": )", names,
                                  R"(, "curvature": {"layers_columns": )", columns, "}}"))
                      .status());
  };
  EXPECT_EQ(error(R"(["a"])", R"({"name": [0], "trace": 1})"), "");
  EXPECT_THAT(error(R"(["a"])", "[]"), HasSubstr("curvature.layers_columns must be an object"));
  EXPECT_THAT(error(R"(["a"])", R"({"name": [1]})"), HasSubstr("layer_names must be longer"));
  EXPECT_THAT(error(R"(["a"])", R"({"name": [-1]})"), HasSubstr("layer_names must be longer"));
  EXPECT_THAT(error(R"([7])", R"({"name": [0]})"), HasSubstr("layer_names must be a string"));
  EXPECT_THAT(error(R"(["a"])", R"({"name": ["a"]})"), HasSubstr("name[0] must be an integer"));
  EXPECT_THAT(error(R"(["a"])", R"({"name": 9000000000000})"),
              HasSubstr("layer_names must be longer"));
  EXPECT_THAT(error(R"(["a"])", R"({"name": [0, 0], "trace": [1]})"),
              HasSubstr("curvature.layers_columns.trace must be longer"));
  EXPECT_THAT(error(R"(["a"])", R"({"name": [0], "trace": ["x"]})"),
              HasSubstr("curvature.layers_columns.trace must be a number"));
  EXPECT_THAT(StrCat(FromJson(R"({"skipped_layers_columns": {"name": [0]}})").status()),
              HasSubstr("layer_names must be longer"));
}

TEST(LayerColumns, TellIntegersFromOtherNumbers) {
  std::vector<LayerQuantization> layers(2);
  layers[1].output_error_ratio = 0.0;
  layers[1].dead_columns = 0;
  const AnalyzedReport report = WithLayers(layers);
  const auto read = FromJson(ToColumnJson(report));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, report);
}

TEST(LayerColumns, RefuseMoreRowsThanMemoryHolds) {
  std::string names = R"("")";
  for (int i = 0; i < 100'000; ++i) names += R"(, "")";
  std::string entries = R"({"layers_columns": {"name": 100000}})";
  for (int i = 0; i < 20; ++i) entries += R"(, {"layers_columns": {"name": 100000}})";
  EXPECT_THAT(StrCat(FromJson(StrCat(R"({"layer_names": [)", names, R"(], "quantization": [)",
                                     entries, "]}"))
                         .status()),
              HasSubstr("layers_columns must be of fewer rows"));
}

TEST(LayerColumns, RefuseToRepeatALongText) {
  std::string indices = "0";
  for (int i = 0; i < 300; ++i) indices += ", 0";
  const std::string text(1 << 20, 'x');
  EXPECT_THAT(StrCat(FromJson(StrCat(R"({"layer_names": [")", text,
                                     R"("], "skipped_layers_columns": {"name": [)", indices, "]}}"))
                         .status()),
              HasSubstr("less text"));
}

}  // namespace layer_columns_test
}  // namespace ptqwatch::internal
