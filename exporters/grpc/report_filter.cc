#include "report_filter.h"

#include <algorithm>
#include <functional>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr size_t kMaxKinds = 64;

// Of the messages that name a quantizer.
static_assert(v1::QuantizationReport::kMethodFieldNumber == 1 &&
              v1::QuantizationReport::kBitsFieldNumber == 2 &&
              v1::MixedPrecisionReport::kMethodFieldNumber == 1 &&
              v1::MixedPrecisionReport::kBitsFieldNumber == 2);

CodedInputStream InputOf(std::string_view message) {
  return CodedInputStream(reinterpret_cast<const uint8_t*>(message.data()),
                          static_cast<int>(message.size()));
}

// Calls `field` with the number of each field, its content where it is a message or a string, and
// all of its bytes.
void ForEachField(std::string_view message,
                  const std::function<void(int, std::string_view, std::string_view)>& field) {
  CodedInputStream input = InputOf(message);
  for (int begin = 0; begin < static_cast<int>(message.size());) {
    const uint32_t tag = input.ReadTag();
    std::string_view content;
    uint32_t size = 0;
    if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!input.ReadVarint32(&size)) return;
      content = message.substr(static_cast<size_t>(input.CurrentPosition()), size);
      if (!input.Skip(static_cast<int>(size))) return;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return;
    }
    const int end = input.CurrentPosition();
    field(WireFormatLite::GetTagFieldNumber(tag), content,
          message.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    begin = end;
  }
}

void AppendMessage(int number, const std::string& content, std::string& out) {
  uint8_t head[20];
  uint8_t* end = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), head);
  end = CodedOutputStream::WriteVarint64ToArray(content.size(), end);
  out.append(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
  out += content;
}

}  // namespace

absl::Status QuantizerFilter::Add(std::string_view method, int bits) {
  if (!method.empty()) PTQWATCH_RETURN_IF_ERROR(ParseQuantizationMethod(method).status());
  if (bits < 0) {
    return absl::InvalidArgumentError(StrCat("quantizers: bits must not be negative, is ", bits));
  }
  if (kinds_.size() == kMaxKinds) {
    return absl::InvalidArgumentError(StrCat("quantizers: there may be ", kMaxKinds));
  }
  kinds_.push_back({std::string(method), bits});
  return absl::OkStatus();
}

bool QuantizerFilter::Passes(std::string_view entry) const {
  CodedInputStream input = InputOf(entry);
  std::string method;
  uint32_t bits = 0;
  // Fields are written in the order of their numbers; zeros are left out.
  uint32_t tag = input.ReadTag();
  uint32_t size = 0;
  if (WireFormatLite::GetTagFieldNumber(tag) == 1) {
    if (!input.ReadVarint32(&size) || !input.ReadString(&method, static_cast<int>(size))) {
      return true;
    }
    tag = input.ReadTag();
  }
  if (WireFormatLite::GetTagFieldNumber(tag) == 2 && !input.ReadVarint32(&bits)) return true;
  return std::any_of(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return (kind.method.empty() || kind.method == method) &&
           (kind.bits == 0 || kind.bits == static_cast<int>(bits));
  });
}

std::string QuantizerFilter::FilterAverage(std::string_view average) const {
  std::string kept;
  ForEachField(average, [&](int number, std::string_view content, std::string_view bytes) {
    if (number != v1::AveragingReport::kQuantizationFieldNumber || Passes(content)) kept += bytes;
  });
  return kept;
}

SharedBytes QuantizerFilter::Apply(const SharedBytes& report) const {
  if (kinds_.empty() || report == nullptr) return report;
  std::string kept;
  ForEachField(*report, [&](int number, std::string_view content, std::string_view bytes) {
    switch (number) {
      case v1::Report::kQuantizationFieldNumber:
      case v1::Report::kMixedPrecisionFieldNumber:
        if (Passes(content)) kept += bytes;
        return;
      case v1::Report::kAveragingFieldNumber:
        return AppendMessage(number, FilterAverage(content), kept);
      default:
        kept += bytes;
    }
  });
  return Share(std::move(kept));
}

absl::Status EventFilter::AddKind(int kind) {
  if (kind == v1::EVENT_KIND_UNSPECIFIED || !v1::EventKind_IsValid(kind)) {
    return absl::InvalidArgumentError(StrCat("kinds: there is no event kind ", kind));
  }
  kinds_.insert(kind);
  return absl::OkStatus();
}

absl::Status EventFilter::SetMinSeverity(int severity) {
  if (!v1::Severity_IsValid(severity)) {
    return absl::InvalidArgumentError(StrCat("min_severity: there is no severity ", severity));
  }
  min_severity_ = severity;
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
