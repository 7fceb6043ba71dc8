#include "ptqwatch/grpc_hub.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"
#include "grpc_server.h"
#include "health_service.h"
#include "monitor_service.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "reflection_service.h"
#include "run_exporter.h"
#include "run_routes.h"
#include "security/check_security.h"

namespace ptqwatch {
namespace {

using internal::Guard;
using internal::RunRoutes;
using internal::StrCat;
using std::chrono::milliseconds;

// Time for calls that are being answered when the server ends.
constexpr milliseconds kMaxLastAnswers(100);

absl::Status Check(const GrpcOptions& options) {
  const auto error = [](std::string_view name, std::string_view must, int64_t value) {
    return absl::InvalidArgumentError(
        StrCat("GrpcOptions::", name, " must ", must, ", is ", value));
  };
  if (options.max_subscribers < 1) {
    return error("max_subscribers", "be positive", options.max_subscribers);
  }
  if (options.queue_reports < 1) {
    return error("queue_reports", "be positive", options.queue_reports);
  }
  if (options.history_reports < options.queue_reports) {
    return error("history_reports", StrCat("be at least queue_reports, ", options.queue_reports),
                 options.history_reports);
  }
  if (options.history_bytes < 1) {
    return error("history_bytes", "be positive", options.history_bytes);
  }
  if (options.history_memory_bytes < 1) {
    return error("history_memory_bytes", "be positive", options.history_memory_bytes);
  }
  return absl::OkStatus();
}

internal::ReportFeed::Limits FeedLimits(const GrpcOptions& options) {
  return {.subscribers = static_cast<size_t>(options.max_subscribers),
          .queue_reports = static_cast<size_t>(options.queue_reports),
          .history = {.reports = static_cast<size_t>(options.history_reports),
                      .bytes = options.history_bytes,
                      .memory_bytes = options.history_memory_bytes}};
}

class GrpcHubImpl final : public GrpcHub {
 public:
  GrpcHubImpl(const GrpcOptions& options, internal::BearerToken token)
      : limits_(FeedLimits(options)),
        monitor_service_(&routes_, options.allow_control, std::move(token)),
        health_service_({"", v1::MonitorService::service_full_name()},
                        [this] { return !routes_.All().empty(); }),
        reflection_service_({v1::MonitorService::service_full_name(), "grpc.health.v1.Health"}) {}
  ~GrpcHubImpl() override { Stop(std::chrono::seconds(2)); }

  absl::Status Bind(const GrpcOptions& options) {
    PTQWATCH_ASSIGN_OR_RETURN(
        server_,
        internal::GrpcServer::Start({.kind = "grpc",
                                     .address = options.address,
                                     .allow_remote = options.allow_remote,
                                     .allow_remote_option = "GrpcOptions::allow_remote"},
                                    options.security, options.max_subscribers,
                                    {&monitor_service_, &health_service_, &reflection_service_}));
    address_ = server_->address();
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  absl::StatusOr<std::unique_ptr<Exporter>> AddRun(const std::string& run) override {
    PTQWATCH_ASSIGN_OR_RETURN(RunRoutes::Pointer route, routes_.Add(run, limits_));
    return std::make_unique<internal::RunExporter>(&routes_, std::move(route));
  }

  void Stop(milliseconds deadline) override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::clamp(deadline / 4, milliseconds(0), kMaxLastAnswers));
  }

 private:
  const internal::ReportFeed::Limits limits_;
  RunRoutes routes_;
  internal::MonitorService monitor_service_;
  internal::HealthService health_service_;
  internal::ReflectionService reflection_service_;
  std::unique_ptr<internal::GrpcServer> server_;  // after the services, which it uses
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcHub>> GrpcHub::Create(GrpcOptions options) {
  PTQWATCH_RETURN_IF_ERROR(Check(options));
  PTQWATCH_ASSIGN_OR_RETURN(
      internal::BearerToken token,
      internal::CheckSecurity(options.security, "GrpcOptions", options.allow_remote));
  return Guard(StrCat("grpc address '", options.address, "'"), absl::StatusCode::kInternal,
               [&]() -> absl::StatusOr<std::unique_ptr<GrpcHub>> {
                 // The first object of gRPC starts threads, which take after their creator: so that
                 // is one of our threads, not the trainer's.
                 absl::StatusOr<std::unique_ptr<GrpcHub>> made;
                 PTQWATCH_ASSIGN_OR_RETURN(
                     internal::Thread thread, internal::StartThread("ptqw-grpc-serve", [&] {
                       auto bound = std::make_unique<GrpcHubImpl>(options, std::move(token));
                       const absl::Status status = bound->Bind(options);
                       if (status.ok()) {
                         made = std::move(bound);
                       } else {
                         made = status;
                       }
                     }));
                 thread.Join();
                 return made;
               });
}

}  // namespace ptqwatch
