#include "report_filter.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "event_proto.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {
namespace {

constexpr int kMaxKinds = 64;

// The format of an entry; without one, the method's.
template <typename Entry>
std::string FormatIn(const Entry& entry) {
  if (entry.has_format()) return entry.format();
  const auto method = ParseQuantizationMethod(entry.method());
  return method.ok() ? std::string(FormatOf(*method)) : "";
}

}  // namespace

absl::StatusOr<QuantizerFilter> QuantizerFilter::Make(const Kinds& kinds) {
  if (kinds.size() > kMaxKinds) {
    return absl::InvalidArgumentError(StrCat("quantizers: the limit is ", kMaxKinds));
  }
  QuantizerFilter filter;
  for (v1::QuantizerFilter kind : kinds) {
    if (!kind.method().empty()) {
      PTQWATCH_ASSIGN_OR_RETURN(const QuantizationMethod method,
                                ParseQuantizationMethod(kind.method()));
      kind.set_method(std::string(ToString(method)));  // entries have this name
    }
    if (kind.bits() < 0) {
      return absl::InvalidArgumentError(
          StrCat("quantizers: bits must not be negative, is ", kind.bits()));
    }
    filter.kinds_.push_back(std::move(kind));
  }
  return filter;
}

template <typename Entries>
void QuantizerFilter::Keep(Entries* entries) const {
  const auto unwanted = [this](const auto& entry) {
    return std::none_of(kinds_.begin(), kinds_.end(), [&](const v1::QuantizerFilter& kind) {
      return (kind.method().empty() || kind.method() == entry.method()) &&
             (kind.bits() == 0 || kind.bits() == entry.bits()) &&
             (kind.format().empty() || kind.format() == FormatIn(entry));
    });
  };
  entries->erase(std::remove_if(entries->begin(), entries->end(), unwanted), entries->end());
}

void QuantizerFilter::Apply(v1::Report* report) const {
  if (kinds_.empty()) return;
  Keep(report->mutable_quantization());
  Keep(report->mutable_mixed_precision());
  for (v1::AveragingReport& average : *report->mutable_averaging()) {
    Keep(average.mutable_quantization());
  }
}

absl::StatusOr<std::function<bool(const Event&)>> EventFilter(
    const google::protobuf::RepeatedField<int>& kinds, int min_severity) {
  for (const int kind : kinds) {
    if (kind == v1::EVENT_KIND_UNSPECIFIED || !v1::EventKind_IsValid(kind)) {
      return absl::InvalidArgumentError(StrCat("kinds: there is no event kind ", kind));
    }
  }
  if (!v1::Severity_IsValid(min_severity)) {
    return absl::InvalidArgumentError(StrCat("min_severity: there is no severity ", min_severity));
  }
  return [wanted = std::set<int>(kinds.begin(), kinds.end()), min_severity](const Event& event) {
    v1::Event message;  // for the numbers of its kind and severity
    ToProto(event, &message);
    return (wanted.empty() || wanted.count(message.kind()) > 0) &&
           message.severity() >= min_severity;
  };
}

}  // namespace ptqwatch::internal
