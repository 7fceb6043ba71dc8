#ifndef PTQWATCH_GRPC_REPORT_FILTER_H_
#define PTQWATCH_GRPC_REPORT_FILTER_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/event_history.h"
#include "base/shared_bytes.h"

namespace ptqwatch::internal {

/// The quantizers of which a client wants the measurements.
class QuantizerFilter {
 public:
  /// One more kind; an empty method and 0 bits stand for any. InvalidArgument for an unknown
  /// method, negative bits, and too many.
  absl::Status Add(std::string_view method, int bits);

  /// A serialised v1::Report with the measurements of these alone; `report` where none was added.
  /// Cost: a walk over the report's fields, and a copy of what stays.
  SharedBytes Apply(const SharedBytes& report) const;

 private:
  struct Kind {
    std::string method;
    int bits = 0;
  };
  // Whether one of the messages that begin with `method` and `bits` stays.
  bool Passes(std::string_view entry) const;
  std::string FilterAverage(std::string_view average) const;

  std::vector<Kind> kinds_;
};

/// The events that a client wants.
class EventFilter {
 public:
  /// Numbers are those of v1::EventKind and v1::Severity; without a kind all pass. InvalidArgument
  /// for those that there are not.
  absl::Status AddKind(int kind);
  absl::Status SetMinSeverity(int severity);

  bool Passes(const WireEvent& event) const {
    return (kinds_.empty() || kinds_.count(event.kind) > 0) && event.severity >= min_severity_;
  }

 private:
  std::set<int> kinds_;
  int min_severity_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REPORT_FILTER_H_
