#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/report.h"
#include "support/sample_report.h"

namespace ptqwatch {
namespace report_json_test {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::SampleReport;

AnalyzedReport RoundTrip(const AnalyzedReport& report) {
  absl::StatusOr<AnalyzedReport> read = FromJson(ToJson(report));
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : AnalyzedReport{};
}

TEST(ReportJson, ReadsBackWhatItWrote) {
  EXPECT_EQ(RoundTrip(SampleReport()), SampleReport());
  EXPECT_EQ(RoundTrip(AnalyzedReport{}), AnalyzedReport{});
}

// `keys` are separated by spaces.
void ExpectKeys(const json& object, const std::string& keys) {
  std::istringstream words(keys);
  for (std::string key; words >> key;) EXPECT_TRUE(object.contains(key)) << key;
}

TEST(ReportJson, HasTheLossUnderNoise) {
  const json line = json::parse(ToJson(SampleReport()));
  EXPECT_EQ(line.at("noise"),
            json::parse(R"({"status": "ok", "status_detail": "quiet", "relative_norm": 0.1,
                            "draws": 8, "delta_nats": 0.031, "delta_stderr_nats": 0.0015,
                            "probe_tokens": 65536, "routing_change_ratio": 0.0625})"));
}

TEST(ReportJson, HasTheLossOnAllProbeSets) {
  const json line = json::parse(ToJson(SampleReport()));
  const json& pooled = line.at("pooled");
  ExpectKeys(pooled,
             "method bits format status status_detail delta_nats delta_stderr_nats error_ratio "
             "error_ratio_stderr probe_tokens sets");
  EXPECT_EQ(pooled.size(), 11u);
  ASSERT_EQ(pooled.at("sets").size(), 3u);
  EXPECT_EQ(pooled.at("sets").at(1).at("set"), 1);
  EXPECT_EQ(pooled.at("sets").at(1).size(), 13u);
}

TEST(ReportJson, HasTheKeysOfALayer) {
  const json line = json::parse(ToJson(SampleReport()));
  EXPECT_EQ(line.at("quantization").at(0).at("layers").at(1),
            json::parse(R"({"name": "blocks.1.weight", "output_error_ratio": 0.03, "damp": 0.01,
                            "rtn_output_error_ratio": 0.045, "tokens": 8192, "skipped_rows": 3,
                            "dead_columns": 2, "status": "ok", "gradient_term_nats": -0.001,
                            "curvature_term_nats": 0.015, "dead_zone_ratio": 0.001,
                            "grid_noise_ratio": 0.0075, "scale_bias_ratio": -0.0005,
                            "accumulated_error_ratio": 0.0125, "stacked": 16, "stacked_ok": 15,
                            "output_error_p10_ratio": 0.015, "output_error_median_ratio": 0.03,
                            "output_error_p90_ratio": 0.06, "entropy_bits": 2.62})"));
}

TEST(ReportJson, HasTheKeysProgramsRelyOn) {
  const json line = json::parse(ToJson(SampleReport()));
  ExpectKeys(
      line,
      "schema_version run_id attempt fingerprint sequence branch rank ranks source snapshot_dtype "
      "probe_state_sequence step snapshot_time_unix_seconds learning_rate tokens "
      "training_loss_nats trigger lr_phase "
      "lr_change_points decay_onset_step rolled_back snapshot_digest parameter_digests "
      "probe_status "
      "probe_status_detail "
      "probe_loss_nats probe_loss_stderr_nats probe_tokens probe_examples bytes_per_token "
      "probe_accuracy_ratio "
      "probe_accuracy_stderr calibration_mode quantization skipped_layers unseen curvature "
      "averaging mixed_precision noise pooled predicted_end plan tasks verdict cost");
  EXPECT_EQ(line.size(), 46u);
  const json& entry = line.at("quantization").at(0);
  ExpectKeys(
      entry,
      "method bits group_size symmetric status status_detail loss_nats delta_nats "
      "delta_stderr_nats error_ratio error_ratio_stderr displacement_norm predicted_delta_nats "
      "curvature_batch_delta_nats curvature_batch_delta_stderr_nats prediction_detail "
      "gradient_term_nats curvature_term_nats curvature_along_error "
      "top_eigenvector_alignment loss_along beyond_quadratic_scale critical_sharpness "
      "accuracy_ratio accuracy_degradation_ratio "
      "accuracy_degradation_stderr probe_tokens coverage_ratio tasks layers format scale_rule "
      "change_nats change_stderr_nats routing_change_ratio fallback_tokens_ratio entropy_bits "
      "artifact_bytes");
  EXPECT_EQ(entry.size(), 38u);
  EXPECT_EQ(entry.at("tasks").at(0),
            json::parse(R"({"task": "sciq", "metric": "acc_norm", "examples": 1000, "value": 0.41,
                            "value_stderr": 0.015, "degradation_ratio": 0.08,
                            "degradation_stderr": 0.012})"));
  EXPECT_EQ(entry.at("loss_along").at(0).size(), 4u);
  EXPECT_EQ(entry.at("loss_along").at(0).at("scale"), 0.5);
  const json& curvature = line.at("curvature");
  ExpectKeys(
      curvature,
      "status status_detail scope mode mode_detail parameters loss_nats batch_tokens gradient_norm "
      "top_eigenvalue top_eigenvalue_upper top_eigenvalue_residual_ratio bottom_eigenvalue "
      "bottom_eigenvalue_residual_ratio eigenvalue_method top_eigenvalues trace "
      "trace_stderr trace_interval trace_probes trace_batch_stderr graph_bytes weighted_trace "
      "weighted_trace_stderr trace_status trace_detail step_check_ratio hessian_products "
      "edge_of_stability_ratio edge_of_stability_residual_ratio edge_of_stability_detail "
      "edge_of_stability_status optimizer layers");
  EXPECT_EQ(curvature.size(), 34u);
  EXPECT_EQ(curvature.at("top_eigenvalues").at(1),
            json::parse(R"({"value": 7.5, "residual_ratio": 0.05, "converged": true, "products": 6,
                            "start": "cold"})"));
  EXPECT_EQ(curvature.at("layers").at(0),
            json::parse(R"({"name": "blocks.0.weight", "parameters": 12288, "trace": 205,
                            "trace_stderr": 9.5, "weight_mean_square": 0.021, "stacked": 2})"));
  EXPECT_EQ(line.at("lr_change_points").at(1),
            json::parse(R"({"step": 12800, "learning_rate": 0.01})"));
  EXPECT_EQ(line.at("skipped_layers").at(0),
            json::parse(R"({"name": "head.weight", "reason": "output head", "parameters": 4096})"));
  const json& averaging = line.at("averaging").at(0);
  ExpectKeys(averaging,
             "kind window decay snapshots first_step status status_detail loss_nats "
             "loss_stderr_nats probe_tokens quantization shape change_nats change_stderr_nats");
  EXPECT_EQ(averaging.at("quantization").at(0).size(), 38u);
  ExpectKeys(line.at("mixed_precision").at(0),
             "method bits raised_bits raised_layers mean_bits status status_detail "
             "predicted_delta_nats delta_nats delta_stderr_nats");
  EXPECT_EQ(line.at("mixed_precision").at(0).at("raised_layers"),
            json::parse(R"(["blocks.1.weight"])"));
  ExpectKeys(line.at("verdict"),
             "state onset_step method bits severity_nats severity_low_nats severity_high_nats "
             "severity_ratio severity_low_ratio severity_high_ratio sigmas alarm_sigmas evidence "
             "outlook advice summary");
  EXPECT_EQ(line.at("verdict").at("state"), "decay_degradation");
  EXPECT_EQ(line.at("verdict").at("advice").at(0).at("action"), "average_weights");
  EXPECT_EQ(line.at("cost"), json::parse(R"({"stall": 0.002, "gptq": 1.25, "probe": 0.5})"));
  EXPECT_EQ(line.at("lr_phase"), "decay");
  EXPECT_EQ(line.at("probe_status"), "ok");
}

TEST(ReportJson, ReadsTheVerdictsOfEarlierVersions) {
  const auto state = [](const std::string& name) {
    const auto read = FromJson(R"({"verdict": {"state": ")" + name + R"("}})");
    return read.ok() ? read->verdict.state : VerdictState::kUnknown;
  };
  EXPECT_EQ(state("collecting"), VerdictState::kWarmingUp);
  EXPECT_EQ(state("degrading"), VerdictState::kUnclear);
  EXPECT_EQ(state("degraded"), VerdictState::kUnclear);
  EXPECT_EQ(state("healthy"), VerdictState::kHealthy);
  EXPECT_EQ(state("spike"), VerdictState::kSpike);
  EXPECT_EQ(state("of a later version"), VerdictState::kUnknown);
}

TEST(ReportJson, WritesIntegersAsIntegers) {
  const json line = json::parse(ToJson(SampleReport()));
  EXPECT_TRUE(line.at("step").is_number_integer());
  EXPECT_EQ(line.at("tokens").get<int64_t>(), (int64_t{1} << 53) + 1);
  AnalyzedReport report;
  report.report.step = std::numeric_limits<int64_t>::min();
  report.report.tokens = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(RoundTrip(report), report);
}

TEST(ReportJson, KeepsEveryBitOfADouble) {
  std::mt19937_64 random(1);
  AnalyzedReport report;
  report.report.probe_loss_nats = -0.0;
  EXPECT_TRUE(std::signbit(*RoundTrip(report).report.probe_loss_nats));
  for (int i = 0; i < 3000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    report.report.probe_loss_nats = value;
    ASSERT_EQ(std::bit_cast<uint64_t>(*RoundTrip(report).report.probe_loss_nats),
              std::bit_cast<uint64_t>(value));
  }
}

TEST(ReportJson, LeavesOutWhatWasNotMeasured) {
  AnalyzedReport report = SampleReport();
  const double inf = std::numeric_limits<double>::infinity();
  report.report.probe_loss_nats = std::nan("");
  report.report.learning_rate = inf;
  report.report.tokens.reset();
  report.report.quantization[0].delta_nats = -inf;
  report.report.quantization[0].layers[0].damp.reset();
  report.report.cost["gptq"] = std::nan("");
  report.verdict.onset_step.reset();

  const json line = json::parse(ToJson(report));
  EXPECT_FALSE(line.contains("probe_loss_nats"));
  EXPECT_FALSE(line.contains("learning_rate"));
  EXPECT_FALSE(line.contains("tokens"));
  EXPECT_FALSE(line.at("quantization").at(0).contains("delta_nats"));
  EXPECT_FALSE(line.at("quantization").at(0).at("layers").at(0).contains("damp"));
  EXPECT_FALSE(line.at("cost").contains("gptq"));
  EXPECT_FALSE(line.at("verdict").contains("onset_step"));

  const AnalyzedReport read = RoundTrip(report);
  EXPECT_EQ(read.report.probe_loss_nats, std::nullopt);
  EXPECT_EQ(read.report.learning_rate, std::nullopt);
  EXPECT_EQ(read.report.quantization[0].delta_nats, std::nullopt);
  EXPECT_EQ(read.report.cost.count("gptq"), 0u);
}

TEST(ReportJson, IsOneLineWhateverTheStringsHold) {
  AnalyzedReport report = SampleReport();
  std::string odd = "a\nb\r\t\"\\/ \x01 \x7f \u00e9 \U0001F600";
  odd.push_back('\0');
  odd += "end";
  report.report.run_id = odd;
  report.report.quantization[0].layers[0].name = odd;
  report.report.cost[odd] = 1;
  report.verdict.summary = odd;
  EXPECT_EQ(ToJson(report).find('\n'), std::string::npos);
  EXPECT_EQ(RoundTrip(report), report);
}

TEST(ReportJson, ReplacesBytesThatAreNotUtf8) {
  AnalyzedReport report = SampleReport();
  report.report.quantization[0].layers[0].name = "layer\xff\xc0.weight";
  report.report.skipped_layers[0].name = "cut \xe2\x82";
  report.report.cost["\xfe"] = 2;
  const AnalyzedReport read = RoundTrip(report);
  EXPECT_EQ(read.report.quantization[0].layers[0].name, "layer\ufffd\ufffd.weight");
  EXPECT_EQ(read.report.skipped_layers[0].name, "cut \ufffd");
  EXPECT_EQ(read.report.cost.at("\ufffd"), 2);
}

TEST(ReportJson, IgnoresUnknownKeysAndNames) {
  json line = json::parse(ToJson(SampleReport()));
  line["of_a_later_version"] = {{"window", 4}};
  line["verdict"]["of_a_later_version"] = json::array({1, 2});
  line["quantization"][0]["layers"][0]["new"] = nullptr;
  EXPECT_EQ(*FromJson(line.dump()), SampleReport());

  line["lr_phase"] = "cyclic";
  const absl::StatusOr<AnalyzedReport> read = FromJson(line.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->report.lr_phase, LrPhase::kUnknown);
  EXPECT_EQ(read->report.step, 16000);
}

TEST(ReportJson, ReadsAMissingOrNullOptionalAsAbsent) {
  const absl::StatusOr<AnalyzedReport> read =
      FromJson(R"({"step": 5, "learning_rate": 0, "tokens": null})");
  ASSERT_TRUE(read.ok()) << read.status();
  AnalyzedReport expected;
  expected.report.step = 5;
  expected.report.learning_rate = 0;  // a rate, too: the end of a decay
  EXPECT_EQ(*read, expected);
  EXPECT_EQ(FromJson(R"({"step": 5})")->report.learning_rate, std::nullopt);
}

TEST(ReportJson, ReadsAnIntegerWhereADoubleIsMeant) {
  const absl::StatusOr<AnalyzedReport> read = FromJson(R"({"learning_rate": 1})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->report.learning_rate, 1.0);
}

TEST(ReportJson, NamesTheKeyOfTheWrongType) {
  const auto error = [](const char* line) {
    const absl::StatusOr<AnalyzedReport> read = FromJson(line);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << line;
    return std::string(read.status().message());
  };
  EXPECT_THAT(error(R"({"step": "5"})"), HasSubstr("step must be an integer"));
  EXPECT_THAT(error(R"({"step": 5.0})"), HasSubstr("step must be an integer"));
  EXPECT_THAT(error(R"({"step": null})"), HasSubstr("step must be an integer"));
  EXPECT_THAT(error(R"({"step": 9223372036854775808})"), HasSubstr("step must be an integer"));
  EXPECT_THAT(error(R"({"attempt": 2147483648})"), HasSubstr("attempt must be an integer of 32"));
  EXPECT_THAT(error(R"({"tokens": true})"), HasSubstr("tokens must be an integer"));
  EXPECT_THAT(error(R"({"learning_rate": "fast"})"), HasSubstr("learning_rate must be a number"));
  EXPECT_THAT(error(R"({"run_id": 3})"), HasSubstr("run_id must be a string"));
  EXPECT_THAT(error(R"({"lr_phase": 3})"), HasSubstr("lr_phase must be a string"));
  EXPECT_THAT(error(R"({"rolled_back": 0})"), HasSubstr("rolled_back must be true or false"));
  EXPECT_THAT(error(R"({"quantization": {}})"), HasSubstr("quantization must be an array"));
  EXPECT_THAT(error(R"({"quantization": [{}, {"bits": []}]})"),
              HasSubstr("quantization[1].bits must be an integer, is array"));
  EXPECT_THAT(error(R"({"quantization": [{"layers": [4]}]})"),
              HasSubstr("quantization[0].layers[0] must be an object"));
  EXPECT_THAT(error(R"({"cost": {"gptq": "1"}})"), HasSubstr("cost.gptq must be a number"));
  EXPECT_THAT(error(R"({"cost": []})"), HasSubstr("cost must be an object"));
  EXPECT_THAT(error(R"({"verdict": "healthy"})"), HasSubstr("verdict must be an object"));
  EXPECT_THAT(error(R"({"verdict": {"onset_step": 1.5}})"),
              HasSubstr("verdict.onset_step must be an integer"));
  EXPECT_THAT(error("[]"), HasSubstr("line must be an object"));
}

TEST(ReportJson, RejectsWhatIsNotJson) {
  const std::string whole = ToJson(SampleReport());
  for (const std::string& line :
       {std::string(), std::string("\0\0\0\0", 4), std::string("{\"step\": 1e999}"),
        std::string("{\"run_id\": \"\xff\"}"), whole + whole, whole.substr(0, whole.size() - 1),
        std::string(100000, '['), std::string("nan")}) {
    EXPECT_EQ(FromJson(line).status().code(), absl::StatusCode::kInvalidArgument)
        << line.substr(0, 40);
  }
}

TEST(ReportJson, RejectsEveryProperPrefix) {
  const std::string whole = ToJson(SampleReport());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(FromJson(std::string_view(whole).substr(0, size)).ok()) << size;
  }
}

TEST(ReportJson, WritesAnEnumWithoutAValueAsAnEmptyString) {
  AnalyzedReport report;
  report.report.quantization.emplace_back().layers.emplace_back();
  report.report.curvature.emplace().top_eigenvalues.emplace_back();
  const json line = json::parse(ToJson(report));
  EXPECT_EQ(line.at("calibration_mode"), "");
  EXPECT_EQ(line.at("quantization").at(0).at("method"), "");
  EXPECT_EQ(line.at("quantization").at(0).at("layers").at(0).at("status"), "");
  for (const char* key : {"scope", "mode", "eigenvalue_method", "optimizer"}) {
    EXPECT_EQ(line.at("curvature").at(key), "") << key;
  }
  EXPECT_EQ(line.at("curvature").at("top_eigenvalues").at(0).at("start"), "");
  EXPECT_EQ(*FromJson(ToJson(report)), report);
}

TEST(ReportJson, KeepsFormatsOfOneMethodAndWidthApart) {
  AnalyzedReport analyzed;
  for (const char* format : {"", "mxfp4", "mxfp4-h32"}) {
    QuantizationReport& entry = analyzed.report.quantization.emplace_back();
    entry.method = QuantizationMethod::kRtn;
    entry.bits = 4;
    if (*format == '\0') continue;
    entry.format = format;
    entry.scale_rule = "even";
  }
  const std::string line = ToJson(analyzed);
  // The key of a default format is absent, as in journals of earlier versions.
  EXPECT_FALSE(json::parse(line).at("quantization").at(0).contains("format"));
  EXPECT_FALSE(json::parse(line).at("quantization").at(0).contains("scale_rule"));
  EXPECT_EQ(*FromJson(line), analyzed);
}

TEST(ReportJson, ReadsANameThatItDoesNotKnowAsNoValue) {
  const AnalyzedReport read =
      *FromJson(R"({"lr_phase": "later", "quantization": [{"method": "later", "bits": 3}],
               "curvature": {"mode": "later", "scope": null}})");
  EXPECT_EQ(read.report.lr_phase, LrPhase::kUnknown);
  EXPECT_EQ(read.report.quantization.at(0).method, std::nullopt);
  EXPECT_EQ(read.report.quantization.at(0).bits, 3);
  EXPECT_EQ(read.report.curvature->mode, std::nullopt);
  EXPECT_EQ(read.report.curvature->scope, std::nullopt);
}

}  // namespace report_json_test
}  // namespace ptqwatch
