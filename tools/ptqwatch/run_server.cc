#include "run_server.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{100};
// For the streams of one run to read what is left.
constexpr milliseconds kStopRun{50};
// Of one run, and in all.
constexpr int kMaxSubscribers = 1024;
// What is in memory of all runs, for each of the two servers; the rest of their reports lies in
// files without a name.
constexpr int64_t kMemoryBytes = int64_t{32} << 20;
constexpr int64_t kHistoryBytes = int64_t{1} << 40;
constexpr int kHistoryReports = 10'000'000;

std::vector<std::string> NamesOf(const std::vector<std::string>& run_dirs) {
  std::vector<std::string> last;
  for (const std::string& run_dir : run_dirs) last.push_back(RunNameOf(run_dir));
  std::vector<std::string> names;
  for (size_t i = 0; i < run_dirs.size(); ++i) {
    const bool unique = std::count(last.begin(), last.end(), last[i]) == 1;
    names.push_back(unique ? last[i] : run_dirs[i]);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunServer>> RunServer::Start(const RunServerOptions& options) {
  absl::StatusOr<std::unique_ptr<RunServer>> server = Make(options);
  if (server.ok()) return server;
  // The options of the library have other names than the command's.
  const std::string message =
      absl::StrReplaceAll(server.status().message(), {{"PrometheusOptions.", "GrpcOptions."}});
  return absl::Status(
      server.status().code(),
      absl::StrReplaceAll(message,
                          {{"PrometheusOptions::allow_remote, which is false", "--allow-remote"},
                           {"GrpcOptions::allow_remote, which is false", "--allow-remote"},
                           {"GrpcOptions.security.certificate_file", "--tls-cert"},
                           {"GrpcOptions.security.private_key_file", "--tls-key"},
                           {"GrpcOptions.security.client_ca_file", "--client-ca"},
                           {"GrpcOptions.security.token_file", "--token-file"}}));
}

absl::StatusOr<std::unique_ptr<RunServer>> RunServer::Make(const RunServerOptions& options) {
  std::unique_ptr<RunServer> server(new RunServer);
  const auto runs = static_cast<int64_t>(std::max<size_t>(options.run_dirs.size(), 1));
  if (!options.http.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(server->http_,
                              PrometheusHub::Create({.address = options.http,
                                                     .allow_remote = options.allow_remote,
                                                     .security = options.security,
                                                     .max_layers = options.max_layers,
                                                     .allowed_hosts = options.allowed_hosts,
                                                     .max_streams = kMaxSubscribers,
                                                     .history_reports = kHistoryReports,
                                                     .history_bytes = kHistoryBytes,
                                                     .history_memory_bytes = kMemoryBytes / runs}));
  }
  if (!options.grpc.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(server->grpc_,
                              GrpcHub::Create({.address = options.grpc,
                                               .allow_remote = options.allow_remote,
                                               .security = options.security,
                                               .allow_control = options.allow_control,
                                               .max_subscribers = kMaxSubscribers,
                                               // However slow, a client gets them all.
                                               .queue_reports = kHistoryReports,
                                               .history_reports = kHistoryReports,
                                               .history_bytes = kHistoryBytes,
                                               .history_memory_bytes = kMemoryBytes / runs}));
  }
  const std::vector<std::string> names =
      options.named ? NamesOf(options.run_dirs) : std::vector<std::string>{""};
  for (size_t i = 0; i < names.size(); ++i) {
    server->Follow(options.run_dirs[i], names[i]);
  }
  PTQWATCH_ASSIGN_OR_RETURN(server->thread_,
                            StartThread("ptqw-follow", [made = server.get()] { made->PollAll(); }));
  return server;
}

void RunServer::Follow(const std::string& run_dir, const std::string& name) {
  const auto make = [this, name]() -> absl::StatusOr<std::vector<std::unique_ptr<Exporter>>> {
    std::vector<std::unique_ptr<Exporter>> exporters;
    if (grpc_ != nullptr) {
      PTQWATCH_ASSIGN_OR_RETURN(exporters.emplace_back(), grpc_->AddRun(name));
    }
    if (http_ != nullptr) {
      PTQWATCH_ASSIGN_OR_RETURN(exporters.emplace_back(), http_->AddRun(name));
    }
    return exporters;
  };
  followers_.push_back(RunFollower::Create(run_dir, make));
}

void RunServer::PollAll() {
  while (!stopping()) {
    bool more = false;
    for (const auto& follower : followers_) {
      if (stopping()) break;
      more |= follower->Poll();
    }
    const auto next = std::chrono::steady_clock::now() + (more ? milliseconds(0) : kPollInterval);
    MutexLock lock(mutex_);
    while (!stopping_ && changed_.WaitUntil(mutex_, next)) {
    }
  }
  for (const auto& follower : followers_) follower->Stop(kStopRun);
}

bool RunServer::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void RunServer::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.Join();
  if (http_ != nullptr) http_->Stop();
  if (grpc_ != nullptr) grpc_->Stop(std::chrono::seconds(1));
}

}  // namespace ptqwatch::internal
