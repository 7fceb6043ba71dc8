#ifndef PTQWATCH_GRPC_RUN_ROUTES_H_
#define PTQWATCH_GRPC_RUN_ROUTES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "ptqwatch/exporter.h"
#include "report_feed.h"

namespace ptqwatch::internal {

/// A run as the service sees it.
struct RunRoute {
  RunRoute(std::string run_in, const ReportFeed::Limits& limits)
      : run(std::move(run_in)), feed(limits) {}

  const std::string run;  ///< the server's name for it; may be empty
  ReportFeed feed;
  /// Set before the feed opens, read only while it serves.
  StatusSource* source = nullptr;
  Control* control = nullptr;  ///< null: the run takes no commands
};

/// The runs of a server. Thread-safe.
class RunRoutes {
 public:
  using Pointer = std::shared_ptr<RunRoute>;

  /// AlreadyExists for a second run of a name.
  absl::StatusOr<Pointer> Add(const std::string& run, const ReportFeed::Limits& limits);
  /// From now on it is not found. It lives until its streams have ended.
  void Remove(const Pointer& route);

  /// The run that `run_id` names: by the server's name or by its id, and the only one where it is
  /// empty. The status is the one to answer with: that the run is not served (yet) is part of it.
  absl::StatusOr<Pointer> Find(const std::string& run_id) const;
  /// In the order of their names; those that are not served (yet) are left out.
  std::vector<Pointer> All() const;

 private:
  mutable Mutex mutex_;
  std::vector<Pointer> routes_ ABSL_GUARDED_BY(mutex_);
  std::vector<Pointer> removed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_RUN_ROUTES_H_
