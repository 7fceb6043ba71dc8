// The gRPC service answers any bytes from a client or rejects them as no message. A report or event
// that is read from any bytes and written again stays the same.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_proto.h"
#include "event_proto.h"
#include "feed/run_feed.h"
#include "fuzz/fuzz_target.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/grpc_server.h"
#include "grpc/report_filter.h"
#include "ptqwatch/control.h"
#include "ptqwatch/event.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "report_proto.h"
#include "support/sample_report.h"

namespace ptqwatch::fuzz {
namespace {

// Maps in the order of their keys.
std::string Bytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  Require(message.SerializeToCodedStream(&coded), "a message can be written");
  coded.Trim();
  return bytes;
}

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void ReadReport(std::string_view bytes) {
  v1::Report message;
  if (!Parse(bytes, &message)) return;
  const AnalyzedReport report = internal::FromProto(message);
  v1::Report written;
  internal::ToProto(report, &written, /*with_layers=*/true);
  v1::Report received;
  Require(Parse(Bytes(written), &received), "a report written is read");
  const AnalyzedReport again = internal::FromProto(received);
  v1::Report rewritten;
  internal::ToProto(again, &rewritten, /*with_layers=*/true);
  Require(Bytes(rewritten) == Bytes(written), "a report written says the same");
  absl::StatusOr<AnalyzedReport> journalled = FromJson(ToJson(again));
  Require(journalled.ok(), "its line of a journal is read");
  // A line without a learning rate reads as 0, a message without one as not a number.
  if (!written.has_learning_rate()) journalled->report.learning_rate = again.report.learning_rate;
  for (int i = 0; i < written.lr_change_points_size(); ++i) {
    if (written.lr_change_points(i).has_learning_rate()) continue;
    const auto point = static_cast<size_t>(i);
    journalled->report.lr_change_points[point] = again.report.lr_change_points[point];
  }
  v1::Report from_journal;
  internal::ToProto(*journalled, &from_journal, /*with_layers=*/true);
  Require(Bytes(from_journal) == Bytes(written), "its line of a journal says the same");
  internal::ToProto(report, &written, /*with_layers=*/false);
  Require(written.ByteSizeLong() <= rewritten.ByteSizeLong(), "without layers there is less");
}

void ReadEvent(std::string_view bytes) {
  v1::Event message;
  if (!Parse(bytes, &message)) return;
  const Event event = internal::FromProto(message);
  v1::Event written;
  internal::ToProto(event, &written);
  Require(EventToJson(internal::FromProto(written)) == EventToJson(event),
          "an event written says the same");
}

constexpr int64_t kReports = 5;

// A feed with sequences 11, 12, ... 15.
const internal::RunFeed& Feed() {
  static auto* const feed = [] {
    internal::ReportForms forms;
    internal::AddProtoForms(forms);
    auto made = std::make_unique<internal::RunFeed>(internal::ReportHistory::Limits{},
                                                    std::move(forms), [] {});
    AnalyzedReport report = testing::SampleReport();
    for (int64_t i = 1; i <= kReports; ++i) {
      report.report.sequence = 10 + i;
      made->Publish(report);
    }
    return made.release();
  }();
  return *feed;
}

void List(std::string_view bytes) {
  v1::ListReportsRequest request;
  if (!Parse(bytes, &request)) return;
  const auto quantizers = internal::QuantizerFilter::Make(request.quantizers());
  if (!quantizers.ok()) {
    Require(!quantizers.status().message().empty(), "a refusal has a message");
    return;
  }
  const internal::RunFeed::Page page =
      Feed().List(request.after_sequence(), request.limit(), internal::ReportForm::kProto);
  Require(request.limit() <= 0 || static_cast<int>(page.reports.size()) <= request.limit(),
          "a limit holds");
  for (const internal::SharedBytes& report : page.reports) {
    v1::Report message;
    Require(message.ParseFromString(*report), "a report is a message");
    quantizers->Apply(&message);
    Require(message.sequence() > request.after_sequence(), "only later reports");
    Require(message.ByteSizeLong() <= report->size(), "a filter leaves no more than there was");
  }
}

// The other requests have no more in them than their fields.
void ReadRequests(std::string_view bytes) {
  v1::DoRequest asked;
  if (Parse(bytes, &asked)) {
    const absl::StatusOr<Command> command = internal::FromProto(asked);
    Require(command.ok() || !command.status().message().empty(), "a refusal has a message");
  }
  v1::WatchReportsRequest watch;
  if (Parse(bytes, &watch)) Require(Parse(Bytes(watch), &watch), "a request written is read");
}

template <typename Message>
std::string Seed(char kind, const Message& message) {
  return kind + message.SerializeAsString();
}

}  // namespace

std::vector<std::string> Seeds() {
  v1::Report report;
  internal::ToProto(testing::SampleReport(), &report, /*with_layers=*/true);
  v1::Event event;
  internal::ToProto(Event{.kind = Event::Kind::kPlanChanged, .message = "a plan"}, &event);
  v1::ListReportsRequest list;
  list.set_after_sequence(12);
  list.set_limit(2);
  list.add_quantizers()->set_bits(4);
  v1::DoRequest slice;
  internal::ToProto(MakeSlice{.method = QuantizationMethod::kGptq, .bits = 4}, &slice);
  v1::WatchReportsRequest watch;
  watch.set_after_sequence(3);
  watch.set_run_id("run");
  return {Seed(0, report), Seed(1, event), Seed(2, list), Seed(3, slice), Seed(3, watch)};
}

}  // namespace ptqwatch::fuzz

// The first byte says what the others are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ptqwatch::fuzz;  // NOLINT
  // protobuf writes a line about each string that is not UTF-8.
  [[maybe_unused]] static const bool quiet = (google::protobuf::SetLogHandler(nullptr), true);
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      ReadReport(bytes);
      break;
    case 1:
      ReadEvent(bytes);
      break;
    case 2:
      List(bytes);
      break;
    default:
      ReadRequests(bytes);
  }
  return 0;
}
