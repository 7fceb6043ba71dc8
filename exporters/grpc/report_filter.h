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

/// The quantizers whose measurements a client wants.
class QuantizerFilter {
 public:
  using Kinds = google::protobuf::RepeatedPtrField<v1::QuantizerFilter>;

  /// An empty method and 0 bits stand for any; without kinds everything passes. InvalidArgument for
  /// an unknown method, negative bits, and more than 64 kinds.
  static absl::StatusOr<QuantizerFilter> Make(const Kinds& kinds);

  /// Leaves the measurements of these quantizers alone.
  void Apply(v1::Report* report) const;

 private:
  template <typename Entries>
  void Keep(Entries* entries) const;

  std::vector<v1::QuantizerFilter> kinds_;
};

/// Whether an event is of one of the kinds (none: any) and at least so severe. InvalidArgument for
/// an unknown kind or severity.
absl::StatusOr<std::function<bool(const Event&)>> EventFilter(
    const google::protobuf::RepeatedField<int>& kinds, int min_severity);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REPORT_FILTER_H_
