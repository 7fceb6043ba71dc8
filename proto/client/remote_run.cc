#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "client/connection.h"
#include "client/remote_watch.h"
#include "client/target.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "ptqwatch/client.h"
#include "report_proto.h"
#include "status_proto.h"

namespace ptqwatch {
namespace {

using internal::Connection;
using internal::ExplainFailure;
using internal::StrCat;
using internal::Target;

constexpr int64_t kMaxPage = 1 << 20;

constexpr internal::ClientSecurity::Names kNames = {
    .tls = "ClientOptions::tls",
    .roots = "ClientOptions::ca_file",
    .certificate = "ClientOptions::certificate_file",
    .token = "ClientOptions::token_file",
};

absl::Status OfOption(std::string_view option, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(StrCat("ClientOptions::", option, ": ", status.message()));
}

absl::Status Read(std::string_view option, const std::string& path, std::string* text) {
  if (path.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> secret = internal::ReadSecret(path);
  if (secret.ok()) *text = *std::move(secret);
  return OfOption(option, secret.status());
}

absl::StatusOr<Target> MakeTarget(const ClientOptions& options) {
  auto address = internal::ParseServerAddress(options.address, internal::kDefaultGrpcPort);
  PTQWATCH_RETURN_IF_ERROR(OfOption("address", address.status()));
  if (options.certificate_file.empty() != options.private_key_file.empty()) {
    return absl::InvalidArgumentError(
        "ClientOptions::certificate_file and private_key_file: give both or none");
  }
  if (options.timeout <= std::chrono::milliseconds::zero()) {
    return absl::InvalidArgumentError(
        StrCat("ClientOptions::timeout is ", options.timeout.count(), " ms, not positive"));
  }
  Target target(*std::move(address));
  target.run = options.run;
  internal::ClientSecurity& security = target.security;
  security.names = kNames;
  security.tls = options.tls || !options.ca_file.empty() || !options.certificate_file.empty();
  PTQWATCH_RETURN_IF_ERROR(Read("ca_file", options.ca_file, &security.roots));
  PTQWATCH_RETURN_IF_ERROR(
      Read("certificate_file", options.certificate_file, &security.certificate));
  PTQWATCH_RETURN_IF_ERROR(Read("private_key_file", options.private_key_file, &security.key));
  PTQWATCH_RETURN_IF_ERROR(Read("token_file", options.token_file, &security.token));
  return target;
}

class RemoteRun final : public RunSource {
 public:
  RemoteRun(Target target, std::chrono::milliseconds timeout, Clock* clock)
      : target_(std::move(target)), timeout_(timeout), clock_(clock) {}

  std::string place() const override { return target_.ToString(); }

  absl::StatusOr<std::vector<RunStatus>> Runs() override {
    v1::ListRunsResponse response;
    PTQWATCH_RETURN_IF_ERROR(Answer(Connect().ListRuns(&response)));
    std::vector<RunStatus> runs;
    for (const v1::GetStatusResponse& run : response.runs())
      runs.push_back(internal::FromProto(run));
    return runs;
  }

  absl::StatusOr<RunStatus> Status() override {
    v1::GetStatusResponse response;
    PTQWATCH_RETURN_IF_ERROR(Answer(Connect().GetStatus(&response)));
    return internal::FromProto(response);
  }

  absl::StatusOr<std::vector<AnalyzedReport>> Reports(const ReportQuery& query) override {
    Connection connection = Connect();
    std::vector<AnalyzedReport> reports;
    v1::ListReportsRequest request;
    request.set_after_sequence(query.after_sequence);
    request.set_without_layers(query.without_layers);
    while (true) {
      const int64_t left = query.limit - static_cast<int64_t>(reports.size());
      if (query.limit > 0) request.set_limit(static_cast<int32_t>(std::min(left, kMaxPage)));
      v1::ListReportsResponse page;
      PTQWATCH_RETURN_IF_ERROR(Answer(connection.ListReports(request, &page)));
      for (const v1::Report& report : page.reports()) {
        reports.push_back(internal::FromProto(report));
      }
      const bool enough = query.limit > 0 && static_cast<int64_t>(reports.size()) >= query.limit;
      if (enough || !page.more() || page.reports().empty()) return reports;
      request.set_after_sequence(page.reports().rbegin()->sequence());
    }
  }

  absl::Status Watch(const WatchOptions& options, WatchListener* listener) override {
    return internal::RemoteWatch(target_, options, clock_, listener).Run();
  }

  absl::StatusOr<int64_t> Do(const Command& command) override {
    v1::DoResponse response;
    PTQWATCH_RETURN_IF_ERROR(Answer(Connect().Do(command, &response)));
    return response.number();
  }

 private:
  Connection Connect() const { return Connection(target_, timeout_); }
  absl::Status Answer(const grpc::Status& status) const {
    return status.ok() ? absl::OkStatus() : ExplainFailure(status, target_);
  }

  const Target target_;
  const std::chrono::milliseconds timeout_;
  Clock* const clock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RunSource>> OpenRemoteRun(const ClientOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(Target target, MakeTarget(options));
  return std::make_unique<RemoteRun>(std::move(target), options.timeout, Clock::Real());
}

namespace internal {

void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  google::protobuf::SetLogHandler(nullptr);
}

std::unique_ptr<RunSource> OpenRun(const Target& target, Clock* clock) {
  if (!target.run_dir.empty()) return OpenRunDirectory(target.run_dir, clock);
  return std::make_unique<RemoteRun>(target, kCallTimeout, clock);
}

}  // namespace internal

}  // namespace ptqwatch
