// Whatever a line of a journal holds, it is refused with a message or read; what was read and is
// written again says the same.

#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "support/sample_report.h"

namespace ptqwatch::fuzz {
namespace {

void ReadReport(std::string_view line) {
  const absl::StatusOr<AnalyzedReport> report = FromJson(line);
  if (!report.ok()) {
    Require(!report.status().message().empty(), "a refusal has a message");
    return;
  }
  const std::string written = ToJson(*report);
  const absl::StatusOr<AnalyzedReport> again = FromJson(written);
  Require(again.ok(), "a line written is read", std::string(again.status().message()));
  Require(ToJson(*again) == written, "a line written says the same", written);
}

void ReadEvent(std::string_view line) {
  const absl::StatusOr<Event> event = EventFromJson(line);
  if (!event.ok()) {
    Require(!event.status().message().empty(), "a refusal has a message");
    return;
  }
  const std::string written = EventToJson(*event);
  Require(IsEventJson(written), "an event written is one");
  const absl::StatusOr<Event> again = EventFromJson(written);
  Require(again.ok(), "an event written is read", std::string(again.status().message()));
  Require(EventToJson(*again) == written, "an event written says the same", written);
}

}  // namespace

std::vector<std::string> Seeds() {
  Event event;
  event.kind = Event::Kind::kPlanChanged;
  event.message = "a \"plan\" \xff";
  return {ToJson(testing::SampleReport()), EventToJson(event), "{\"event\":{\"kind\":7}}",
          "{\"quantization\":[{\"bits\":1e400,\"layers\":[{\"name\":[[]]}]}],\"sequence\":-1}"};
}

}  // namespace ptqwatch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  ptqwatch::fuzz::ReadReport(line);
  ptqwatch::fuzz::ReadEvent(line);
  return 0;
}
