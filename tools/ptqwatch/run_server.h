#ifndef PTQWATCH_TOOLS_PTQWATCH_RUN_SERVER_H_
#define PTQWATCH_TOOLS_PTQWATCH_RUN_SERVER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "ptqwatch/grpc_hub.h"
#include "ptqwatch/offline/follow_run.h"
#include "ptqwatch/prometheus_hub.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch::internal {

/// Options of a server, and its runs. Its program, environment, linger and max_memory are for those
/// who start it.
struct RunServerOptions : ServeOptions {
  std::vector<std::string> run_dirs = {};
  bool named = true;  ///< false: the one run needs no name, and its series no label `run`
};

/// Follows run directories and serves what it finds there, each run by a name: the last part of its
/// path, or all of the path where two would have the same.
class RunServer {
 public:
  /// Binds and begins to follow. InvalidArgument for a wrong option, Unavailable for an address
  /// that cannot be served; both name it.
  static absl::StatusOr<std::unique_ptr<RunServer>> Start(const RunServerOptions& options);
  ~RunServer() { Stop(); }
  RunServer(const RunServer&) = delete;
  RunServer& operator=(const RunServer&) = delete;

  /// Empty where that is not served.
  std::string http_address() const { return http_ == nullptr ? "" : http_->address(); }
  std::string grpc_address() const { return grpc_ == nullptr ? "" : grpc_->address(); }
  /// Ends streams, connections and threads. Idempotent.
  void Stop();

 private:
  RunServer() = default;
  static absl::StatusOr<std::unique_ptr<RunServer>> Make(const RunServerOptions& options);
  void Follow(const std::string& run_dir, const std::string& name);
  void PollAll();
  bool stopping() const;

  std::unique_ptr<PrometheusHub> http_;
  std::unique_ptr<GrpcHub> grpc_;
  std::vector<std::unique_ptr<RunFollower>> followers_;  // the thread's, once it runs
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_RUN_SERVER_H_
