// Tests of event streams and of filters.

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "grpc/report_filter.h"
#include "gtest/gtest.h"
#include "report_proto.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_filter_test {

using ::testing::ElementsAre;
using testing::GrpcClient;
using ::testing::HasSubstr;
using testing::SampleReport;
using testing::Watch;

class GrpcFilterTest : public testing::GrpcTest {
 protected:
  void Happens(const std::string& message, Event::Kind kind = Event::Kind::kPhaseChange,
               Severity severity = Severity::kInfo) {
    run_->Publish(Event{.kind = kind, .severity = severity, .message = message});
  }
};

class EventWatch : public testing::GrpcStream<v1::WatchEventsResponse> {
 public:
  EventWatch(const std::string& address, const v1::WatchEventsRequest& request)
      : GrpcStream(address) {
    Open(client_.stub->WatchEvents(&context_, request));
  }
  v1::WatchEventsResponse Next() {
    v1::WatchEventsResponse response;
    EXPECT_TRUE(Read(&response));
    return response;
  }
  std::string Message() { return Next().event().message(); }
  // Returns the final status; expects no further event.
  grpc::Status Finish() {
    v1::WatchEventsResponse response;
    EXPECT_FALSE(Read(&response)) << response.event().message();
    return GrpcStream::Finish();
  }
};

v1::WatchEventsRequest After(std::optional<int64_t> number) {
  v1::WatchEventsRequest request;
  if (number) request.set_after_event(*number);
  return request;
}

TEST_F(GrpcFilterTest, StreamsEventsAlone) {
  CreateAndStart();
  Happens("first");
  run_->Publish(1);
  EventWatch next(address(), After(std::nullopt)), all(address(), After(0));
  EXPECT_EQ(Subscribers(), 2);
  run_->Publish(2);
  Happens("second", Event::Kind::kAlert, Severity::kWarning);
  run_->End();
  const v1::WatchEventsResponse second = next.Next();
  EXPECT_EQ(second.event().message(), "second");
  EXPECT_EQ(second.event().number(), 2);
  EXPECT_EQ(second.event().kind(), v1::EVENT_KIND_ALERT);
  EXPECT_EQ(second.event().severity(), v1::SEVERITY_WARNING);
  EXPECT_EQ(second.missed(), 0);
  EXPECT_EQ(all.Message(), "first");
  EXPECT_EQ(all.Message(), "second");
  for (EventWatch* watch : {&next, &all}) {
    const grpc::Status end = watch->Finish();
    EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(end.error_message(), "the monitor has stopped");
  }
}

TEST_F(GrpcFilterTest, StreamsTheEventsThatAreAskedFor) {
  CreateAndStart();
  v1::WatchEventsRequest alerts = After(0), troubles = After(0);
  alerts.add_kinds(v1::EVENT_KIND_ALERT);
  alerts.add_kinds(v1::EVENT_KIND_PROBE_FAILED);
  troubles.set_min_severity(v1::SEVERITY_WARNING);
  EventWatch some(address(), alerts), severe(address(), troubles);
  Happens("phase", Event::Kind::kPhaseChange, Severity::kWarning);
  Happens("alert", Event::Kind::kAlert, Severity::kError);
  Happens("skipped", Event::Kind::kSnapshotSkipped);
  Happens("failed", Event::Kind::kProbeFailed);
  run_->End();
  EXPECT_EQ(some.Message(), "alert");
  const v1::WatchEventsResponse failed = some.Next();
  EXPECT_EQ(failed.event().number(), 4);
  EXPECT_EQ(failed.missed(), 0) << "what was not asked for is not missed";
  EXPECT_EQ(severe.Message(), "phase");
  EXPECT_EQ(severe.Message(), "alert");
  some.Finish();
  severe.Finish();
}

TEST_F(GrpcFilterTest, CountsEventsThatItNoLongerHas) {
  CreateAndStart();
  for (int i = 1; i <= 300; ++i) {
    Happens("e", i == 290 ? Event::Kind::kAlert : Event::Kind::kPhaseChange);
  }
  v1::WatchEventsRequest alerts = After(40);
  alerts.add_kinds(v1::EVENT_KIND_ALERT);
  const v1::WatchEventsResponse response = EventWatch(address(), alerts).Next();
  EXPECT_EQ(response.event().number(), 290);
  EXPECT_EQ(response.missed(), 4);
  EventWatch all(address(), After(44));
  EXPECT_EQ(all.Next().missed(), 0);
  EXPECT_EQ(all.Next().event().number(), 46);
}

TEST_F(GrpcFilterTest, RefusesFiltersThatMeanNothing) {
  CreateAndStart();
  Happens("first");
  const auto refusal = [&](const v1::WatchEventsRequest& request) {
    return EventWatch(address(), request).Finish();
  };
  EXPECT_EQ(refusal(After(-1)).error_message(), "after_event must not be negative, is -1");
  EXPECT_EQ(refusal(After(2)).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refusal(After(2)).error_message(), "after_event 2 is beyond the newest event, 1");
  v1::WatchEventsRequest request;
  request.add_kinds(static_cast<v1::EventKind>(77));
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refusal(request).error_message(), "kinds: there is no event kind 77");
  request.clear_kinds();
  request.set_min_severity(static_cast<v1::Severity>(9));
  EXPECT_EQ(refusal(request).error_message(), "min_severity: there is no severity 9");
}

v1::QuantizerFilter Quantizer(const std::string& method, int bits) {
  v1::QuantizerFilter filter;
  filter.set_method(method);
  filter.set_bits(bits);
  return filter;
}

// The expected result of a filter, computed in another way.
v1::Report Expected(int64_t sequence, bool with_layers, const std::string& method, int bits) {
  AnalyzedReport report = SampleReport();
  report.report.sequence = sequence;
  report.report.step = 100 * sequence;
  const auto is_other = [&](const auto& entry) {
    return (!method.empty() && ToString(entry.method) != method) ||
           (bits != 0 && entry.bits != bits);
  };
  std::erase_if(report.report.quantization, is_other);
  std::erase_if(report.report.mixed_precision, is_other);
  for (auto& average : report.report.averaging) std::erase_if(average.quantization, is_other);
  v1::Report message;
  internal::ToProto(report, &message, with_layers);
  return message;
}

TEST_F(GrpcFilterTest, GivesTheQuantizersThatAreAskedFor) {
  CreateAndStart();
  ASSERT_GT(SampleReport().report.quantization.size(), 1u);
  ASSERT_FALSE(SampleReport().report.averaging.empty());
  run_->Publish(1);
  for (const auto& [method, bits] : std::vector<std::pair<std::string, int>>{
           {"gptq", 4}, {"gptq", 0}, {"", 4}, {"nf4", 3}, {"rtn", 0}}) {
    for (const bool with_layers : {true, false}) {
      v1::WatchReportsRequest request;
      request.set_after_sequence(0);
      request.set_without_layers(!with_layers);
      *request.add_quantizers() = Quantizer(method, bits);
      Watch watch(address(), request);
      v1::WatchReportsResponse response;
      ASSERT_TRUE(watch.Read(&response));
      const v1::Report expected = Expected(1, with_layers, method, bits);
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(response.report(), expected))
          << method << bits << response.report().DebugString();
      v1::ListReportsRequest list;
      list.set_without_layers(!with_layers);
      *list.add_quantizers() = Quantizer(method, bits);
      v1::ListReportsResponse page;
      ASSERT_TRUE(GrpcClient(address()).List(list, &page).ok());
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(page.reports(0), expected));
    }
  }
}

TEST(QuantizerFilter, MatchesTheFormatOfAnEntryOrOfItsMethod) {
  v1::Report all;
  for (const char* format : {"", "nvfp4"}) {
    v1::QuantizationReport* entry = all.add_quantization();
    entry->set_method("gptq");
    entry->set_bits(4);
    if (*format != '\0') entry->set_format(format);
  }
  for (const char* format : {"int", "nvfp4"}) {
    internal::QuantizerFilter::Kinds kinds;
    kinds.Add()->set_format(format);
    v1::Report report = all;
    internal::QuantizerFilter::Make(kinds)->Apply(&report);
    ASSERT_EQ(report.quantization_size(), 1) << format;
    EXPECT_EQ(report.quantization(0).has_format(), std::string_view(format) == "nvfp4");
  }
}

TEST(QuantizerFilter, MatchesEverySpellingOfAMethod) {
  v1::Report all;
  for (const char* method : {"gptq", "llm_int8"}) all.add_quantization()->set_method(method);
  for (const char* spelling : {"llm_int8", "LLM.int8"}) {
    internal::QuantizerFilter::Kinds kinds;
    kinds.Add()->set_method(spelling);
    v1::Report report = all;
    internal::QuantizerFilter::Make(kinds)->Apply(&report);
    ASSERT_EQ(report.quantization_size(), 1) << spelling;
    EXPECT_EQ(report.quantization(0).method(), "llm_int8");
  }
}

TEST_F(GrpcFilterTest, RefusesUnknownQuantizers) {
  CreateAndStart();
  const auto refusal = [&](const std::vector<v1::QuantizerFilter>& filters) {
    v1::ListReportsRequest list;
    for (const auto& filter : filters) *list.add_quantizers() = filter;
    v1::ListReportsResponse page;
    const grpc::Status status = GrpcClient(address()).List(list, &page);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_THAT(refusal({Quantizer("gtpq", 4)}), HasSubstr("'gtpq'"));
  EXPECT_EQ(refusal({Quantizer("rtn", -4)}), "quantizers: bits must not be negative, is -4");
  EXPECT_EQ(refusal(std::vector<v1::QuantizerFilter>(65, Quantizer("rtn", 4))),
            "quantizers: the limit is 64");
  v1::WatchReportsRequest request;
  *request.add_quantizers() = Quantizer("gtpq", 4);
  EXPECT_EQ(Watch(address(), request).Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace grpc_filter_test
}  // namespace ptqwatch
