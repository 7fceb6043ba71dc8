#include "report_proto.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "report/report_fields.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace report_proto_test {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using testing::SampleReport;

bool IsRecord(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_map();
}

// "quantization.layers.name" for each field that is no record itself.
void AddPaths(const Descriptor& type, const std::string& prefix, std::set<std::string>* paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (IsRecord(field)) {
      AddPaths(*field.message_type(), prefix + field.name() + ".", paths);
    } else {
      paths->insert(prefix + field.name());
    }
  }
}

struct PathVisitor {
  std::string prefix;
  std::set<std::string>* paths;

  template <typename T>
  void operator()(const char* key, const T& value) const {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
      EXPECT_TRUE(paths->insert(prefix + key).second) << prefix << key << " is there twice";
    } else {
      VisitFields(value, PathVisitor{prefix + key + ".", paths});
    }
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& value) const {
    ASSERT_TRUE(value.has_value()) << prefix << key << " is not in the sample";
    (*this)(key, *value);
  }
  template <typename T>
  void operator()(const char* key, const std::vector<T>& values) const {
    ASSERT_FALSE(values.empty()) << prefix << key << " is not in the sample";
    (*this)(key, values.front());
  }
  void operator()(const char* key, const std::map<std::string, double>&) const {
    paths->insert(prefix + key);
  }
};

void ExpectSameKeys(const Descriptor& type, const nlohmann::json& json, const std::string& path) {
  std::set<std::string> fields, keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    fields.insert(field.name());
    if (!IsRecord(field) || !json.contains(field.name())) continue;
    const nlohmann::json& value = json[field.name()];
    ExpectSameKeys(*field.message_type(), field.is_repeated() ? value.at(0) : value,
                   path + field.name() + ".");
  }
  EXPECT_EQ(fields, keys) << "in '" << path << "'";
}

TEST(ReportProto, HasTheFieldsOfTheStructs) {
  std::set<std::string> proto, structs;
  AddPaths(*v1::Report::descriptor(), "", &proto);
  const AnalyzedReport sample = SampleReport();
  VisitFields(sample, PathVisitor{"", &structs});
  EXPECT_EQ(proto, structs);
  EXPECT_GT(proto.size(), 60u);
}

TEST(ReportProto, HasTheKeysOfTheJson) {
  ExpectSameKeys(*v1::Report::descriptor(), nlohmann::json::parse(ToJson(SampleReport())), "");
}

// The position of a value is used, too: GetStatusResponse is filled by number.
template <typename Enum>
void ExpectSameEnum(const EnumDescriptor& type, const std::string& prefix) {
  for (int i = 0; i < type.value_count(); ++i) {
    const int number = type.value(i)->number();
    std::string name(ToString(static_cast<Enum>(number)));
    if (number == 0) name = "unspecified";
    for (char& c : name) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(type.value(i)->name(), prefix + name);
  }
  EXPECT_EQ(ToString(static_cast<Enum>(type.value_count())), "unknown")
      << type.full_name() << " lacks a value";
}

TEST(ReportProto, HasTheValuesOfTheEnums) {
  ExpectSameEnum<LrPhase>(*v1::LrPhase_descriptor(), "LR_PHASE_");
  ExpectSameEnum<ProbeStatus>(*v1::ProbeStatus_descriptor(), "PROBE_STATUS_");
  ExpectSameEnum<SnapshotTrigger>(*v1::SnapshotTrigger_descriptor(), "SNAPSHOT_TRIGGER_");
  ExpectSameEnum<VerdictState>(*v1::VerdictState_descriptor(), "VERDICT_STATE_");
  ExpectSameEnum<AdviceAction>(*v1::AdviceAction_descriptor(), "ADVICE_ACTION_");
}

TEST(ReportProto, ReadsBackWhatItWrote) {
  v1::Report message;
  ToProto(SampleReport(), &message, /*with_layers=*/true);
  v1::Report received;
  ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(FromProto(received), SampleReport());
  EXPECT_EQ(received.lr_phase(), v1::LR_PHASE_DECAY);
  EXPECT_EQ(received.verdict().state(), v1::VERDICT_STATE_DECAY_DEGRADATION);
  EXPECT_EQ(received.quantization(0).layers(1).name(), "blocks.1.weight");
}

TEST(ReportProto, ReadsBackAnEmptyReport) {
  const AnalyzedReport empty;
  v1::Report message;
  ToProto(SampleReport(), &message, true);
  ToProto(empty, &message, true);
  EXPECT_EQ(FromProto(message), empty);
  EXPECT_FALSE(message.has_probe_loss_nats());
  EXPECT_FALSE(message.has_curvature());
  EXPECT_EQ(message.trigger(), v1::SNAPSHOT_TRIGGER_UNSPECIFIED);
}

TEST(ReportProto, LeavesLayersOut) {
  AnalyzedReport expected = SampleReport();
  v1::Report message;
  ToProto(expected, &message, /*with_layers=*/false);
  for (QuantizationReport& entry : expected.report.quantization) entry.layers.clear();
  for (AveragingReport& average : expected.report.averaging) {
    for (QuantizationReport& entry : average.quantization) entry.layers.clear();
  }
  expected.report.curvature->layers.clear();
  expected.report.skipped_layers.clear();
  expected.report.parameter_digests.clear();
  EXPECT_EQ(FromProto(message), expected);
}

TEST(ReportProto, LeavesNonFiniteValuesAbsent) {
  AnalyzedReport report = SampleReport();
  report.report.probe_loss_nats = std::nan("");
  report.report.learning_rate = std::numeric_limits<double>::infinity();
  report.report.quantization[0].delta_nats = -std::numeric_limits<double>::infinity();
  report.report.cost = {{"gptq", std::nan("")}, {"probe", 0.5}};
  v1::Report message;
  ToProto(report, &message, true);
  EXPECT_FALSE(message.has_probe_loss_nats());
  EXPECT_FALSE(message.has_learning_rate());
  EXPECT_EQ(FromProto(message).report.learning_rate, std::nullopt);
  EXPECT_FALSE(message.quantization(0).has_delta_nats());
  EXPECT_EQ(message.cost_size(), 1);
  EXPECT_EQ(message.cost().at("probe"), 0.5);
}

TEST(ReportProto, ReplacesInvalidUtf8AsTheJsonDoes) {
  const std::string cases[] = {"plain",
                               "",
                               "Stra\xC3\x9F"
                               "e \xE2\x82\xAC \xF0\x9F\x98\x80",
                               "\xFF",
                               "a\xC3",
                               "a\xC3z",
                               "\xE2\x82",
                               "\xE2\x82z",
                               "\xC0\xAF",          // overlong
                               "\xE0\x80\xAF",      // overlong
                               "\xED\xA0\x80",      // a surrogate
                               "\xF4\x90\x80\x80",  // beyond U+10FFFF
                               "\xF0\x9F\x98",
                               "\x80\x80",
                               std::string("nul\0nul", 7)};
  for (const std::string& text : cases) {
    AnalyzedReport report = SampleReport();
    report.report.run_id = text;
    report.report.skipped_layers[0].name = text;
    report.report.cost = {{text, 1.0}};
    v1::Report message;
    ToProto(report, &message, true);
    v1::Report received;
    ASSERT_TRUE(received.ParseFromString(message.SerializeAsString())) << text;
    const auto from_json = FromJson(ToJson(report));
    ASSERT_TRUE(from_json.ok()) << from_json.status();
    EXPECT_EQ(FromProto(received), *from_json) << ::testing::PrintToString(text);
  }
}

TEST(ReportProto, ReadsWhatALaterVersionWrites) {
  v1::Report message;
  ToProto(SampleReport(), &message, true);
  message.set_lr_phase(static_cast<v1::LrPhase>(77));
  std::string bytes = message.SerializeAsString();
  bytes += "\xF8\x07\x2A";  // field 127, varint 42
  v1::Report received;
  ASSERT_TRUE(received.ParseFromString(bytes));
  AnalyzedReport expected = SampleReport();
  expected.report.lr_phase = LrPhase::kUnknown;
  EXPECT_EQ(FromProto(received), expected);
}

}  // namespace report_proto_test
}  // namespace ptqwatch::internal
