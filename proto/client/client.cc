#include "ptqwatch/client.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "client/connection.h"
#include "client/follower.h"
#include "client/target.h"
#include "event_proto.h"
#include "report_proto.h"
#include "status_proto.h"

namespace ptqwatch {
namespace {

using internal::Connection;
using internal::ExplainFailure;
using internal::FollowOptions;
using internal::StrCat;
using internal::Target;

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

RunStatus ToRunStatus(const v1::GetStatusResponse& response) {
  RunStatus status;
  status.name = response.run();
  status.version = response.version();
  status.last_sequence = response.last_sequence();
  status.dropped_reports = response.dropped_reports();
  internal::FromProto(response, &status.run, &status.monitor);
  return status;
}

class ToListener final : public internal::FollowListener {
 public:
  explicit ToListener(WatchListener* listener) : listener_(listener) {}

  bool OnReport(const v1::Report& report, int64_t missed) override {
    return listener_->OnReport(internal::FromProto(report), missed);
  }
  void OnEvent(const v1::Event& event) override { listener_->OnEvent(internal::FromProto(event)); }
  void OnNotice(std::string_view text) override { listener_->OnNotice(text); }
  bool OnTick(bool connected) override { return listener_->OnTick(connected); }

 private:
  WatchListener* const listener_;
};

class GrpcClient final : public Client {
 public:
  GrpcClient(Target target, std::chrono::milliseconds timeout)
      : target_(std::move(target)), timeout_(timeout) {}

  absl::StatusOr<std::vector<RunStatus>> ListRuns() override {
    v1::ListRunsResponse response;
    PTQWATCH_RETURN_IF_ERROR(Answer(Connect().ListRuns(&response)));
    std::vector<RunStatus> runs;
    for (const v1::GetStatusResponse& run : response.runs()) runs.push_back(ToRunStatus(run));
    return runs;
  }

  absl::StatusOr<RunStatus> GetStatus() override {
    v1::GetStatusResponse response;
    PTQWATCH_RETURN_IF_ERROR(Answer(Connect().GetStatus(&response)));
    return ToRunStatus(response);
  }

  absl::StatusOr<std::vector<AnalyzedReport>> ListReports(int64_t after_sequence,
                                                          bool without_layers) override {
    Connection connection = Connect();
    std::vector<AnalyzedReport> reports;
    v1::ListReportsRequest request;
    request.set_after_sequence(after_sequence);
    request.set_without_layers(without_layers);
    while (true) {
      v1::ListReportsResponse page;
      PTQWATCH_RETURN_IF_ERROR(Answer(connection.ListReports(request, &page)));
      for (const v1::Report& report : page.reports()) {
        reports.push_back(internal::FromProto(report));
      }
      if (!page.more() || page.reports().empty()) return reports;
      request.set_after_sequence(page.reports().rbegin()->sequence());
    }
  }

  absl::Status Watch(const WatchOptions& options, WatchListener* listener) override {
    FollowOptions follow;
    follow.after_sequence = options.after_sequence;
    follow.without_layers = options.without_layers;
    follow.exit_when_done = options.exit_when_done;
    follow.with_events = true;
    follow.give_up_after = options.give_up_after;
    ToListener to_listener(listener);
    return internal::Follower(target_, follow, Clock::Real(), &to_listener).Run();
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
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(Target target, MakeTarget(options));
  return std::make_unique<GrpcClient>(std::move(target), options.timeout);
}

}  // namespace ptqwatch
