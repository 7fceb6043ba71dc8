#include "ptqwatch/run_server.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "feed/report_json.h"
#include "grpc/grpc_server.h"
#include "http/web_server.h"
#include "ptqwatch/run_source.h"
#include "security/check_security.h"
#include "serve/run_follower.h"
#include "serve/targets_file.h"

namespace ptqwatch {
namespace {

using internal::GrpcServer;
using internal::ListenOptions;
using internal::ReportHistory;
using internal::RunFollower;
using internal::ServedRun;
using internal::StrCat;
using internal::TargetsFile;
using internal::WebServer;

// Time for streams to send the rest.
constexpr std::chrono::milliseconds kStop{100};
// Bytes of reports in memory for all runs together. Further reports are in unlinked files.
constexpr int64_t kMemoryBytes = int64_t{32} << 20;
constexpr int64_t kHistoryBytes = int64_t{1} << 40;
constexpr size_t kHistoryReports = 10'000'000;

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

absl::Status CheckOptions(const std::vector<std::string>& run_dirs, const ServeOptions& options) {
  for (const std::string& run_dir : run_dirs) {
    if (std::count(run_dirs.begin(), run_dirs.end(), run_dir) > 1) {
      return absl::InvalidArgumentError(
          StrCat("run directory '", run_dir, "' is given more than once"));
    }
  }
  if (options.max_layers < 0) {
    return absl::InvalidArgumentError(
        StrCat("ServeOptions.max_layers = ", options.max_layers, "; expected 0 or more"));
  }
  if (!options.targets_file.empty() && options.http.empty()) {
    return absl::InvalidArgumentError(StrCat("ServeOptions.targets_file = '", options.targets_file,
                                             "' is for ServeOptions.http, which is empty"));
  }
  return absl::OkStatus();
}

class RunServerImpl final : public RunServer {
 public:
  ~RunServerImpl() override { Stop(); }

  absl::Status Start(const std::vector<std::string>& run_dirs,
                     const std::vector<std::string>& names, const ServeOptions& options) {
    PTQWATCH_RETURN_IF_ERROR(CheckOptions(run_dirs, options));
    PTQWATCH_RETURN_IF_ERROR(Listen(options));
    const auto runs = static_cast<int64_t>(std::max<size_t>(run_dirs.size(), 1));
    const ReportHistory::Limits limits{
        .reports = kHistoryReports, .bytes = kHistoryBytes, .memory_bytes = kMemoryBytes / runs};
    for (size_t i = 0; i < run_dirs.size(); ++i) {
      const auto make = [this, limits, name = names[i]](Control* control) {
        return std::make_shared<ServedRun>(name, control, limits, forms_, [this] { Wake(); });
      };
      PTQWATCH_ASSIGN_OR_RETURN(followed_.emplace_back(),
                                RunFollower::Start(run_dirs[i], make, &runs_));
    }
    if (!options.targets_file.empty()) {
      PTQWATCH_ASSIGN_OR_RETURN(targets_, TargetsFile::Write(options.targets_file, http_->address(),
                                                             options.security.tls()));
    }
    return absl::OkStatus();
  }

  std::string http_address() const override { return http_ == nullptr ? "" : http_->address(); }
  std::string grpc_address() const override { return grpc_ == nullptr ? "" : grpc_->address(); }

  void Stop() override {
    targets_.reset();  // first: once the port is free, another server may take it, and the file
    for (const auto& run : followed_) run->BeginStop();
    for (const auto& run : followed_) run->Stop();
    if (http_ != nullptr) http_->Stop();
    if (grpc_ != nullptr) grpc_->Stop(kStop);
  }

 private:
  absl::Status Listen(const ServeOptions& options) {
    PTQWATCH_ASSIGN_OR_RETURN(
        const internal::BearerToken token,
        internal::CheckSecurity(options.security, "ServeOptions", options.allow_remote));
    const auto listen = [&](std::string_view kind, const std::string& address) {
      return ListenOptions{.kind = kind,
                           .address = address,
                           .allow_remote = options.allow_remote,
                           .allow_remote_option = "ServeOptions::allow_remote"};
    };
    if (!options.http.empty()) {
      internal::AddJsonForms(forms_);
      PTQWATCH_ASSIGN_OR_RETURN(http_,
                                WebServer::Start({.http = {.listen = listen("http", options.http),
                                                           .security = options.security},
                                                  .token = token,
                                                  .max_layers = options.max_layers,
                                                  .allowed_hosts = options.allowed_hosts},
                                                 &runs_));
    }
    if (!options.grpc.empty()) {
      internal::AddProtoForms(forms_);
      PTQWATCH_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start({.listen = listen("grpc", options.grpc),
                                                          .security = options.security,
                                                          .token = token,
                                                          .allow_control = options.allow_control},
                                                         &runs_));
    }
    return absl::OkStatus();
  }

  void Wake() {
    if (http_ != nullptr) http_->Wake();
    if (grpc_ != nullptr) grpc_->Wake();
  }

  internal::ServedRuns runs_{[this] { Wake(); }};
  internal::ReportForms forms_;
  std::unique_ptr<WebServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
  std::vector<std::unique_ptr<RunFollower>> followed_;  // they use the members above
  std::unique_ptr<TargetsFile> targets_;
};

absl::StatusOr<std::unique_ptr<RunServer>> Make(const std::vector<std::string>& run_dirs,
                                                const std::vector<std::string>& names,
                                                const ServeOptions& options) {
  return internal::Guard([&]() -> absl::StatusOr<std::unique_ptr<RunServer>> {
    auto server = std::make_unique<RunServerImpl>();
    PTQWATCH_RETURN_IF_ERROR(server->Start(run_dirs, names, options));
    return server;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunServer>> RunServer::Create(
    const std::vector<std::string>& run_dirs, const ServeOptions& options) {
  return Make(run_dirs, NamesOf(run_dirs), options);
}

absl::StatusOr<std::unique_ptr<RunServer>> RunServer::CreateForOne(const std::string& run_dir,
                                                                   const ServeOptions& options) {
  return Make({run_dir}, {""}, options);
}

}  // namespace ptqwatch
