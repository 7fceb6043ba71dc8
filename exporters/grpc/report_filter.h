#ifndef PTQWATCH_GRPC_REPORT_FILTER_H_
#define PTQWATCH_GRPC_REPORT_FILTER_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "ptqwatch/event.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// Selects the quantizers whose measurements a client wants.
class QuantizerFilter {
 public:
  using Kinds = google::protobuf::RepeatedPtrField<v1::QuantizerFilter>;

  /// An empty method or format, or 0 bits, matches any; an empty list matches everything.
  /// InvalidArgument for an unknown method, negative bits, or more than 64 entries.
  static absl::StatusOr<QuantizerFilter> Make(const Kinds& kinds);

  /// Removes the measurements of all other quantizers from the report.
  void Apply(v1::Report* report) const;

 private:
  template <typename Entries>
  void Keep(Entries* entries) const;

  std::vector<v1::QuantizerFilter> kinds_;
};

/// Returns a predicate that accepts events of these kinds (an empty list means all) and of at least
/// this severity. InvalidArgument for an unknown kind or severity.
absl::StatusOr<std::function<bool(const Event&)>> EventFilter(
    const google::protobuf::RepeatedField<int>& kinds, int min_severity);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REPORT_FILTER_H_
