#include "grpc_server.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "inbound_limit.h"
#include "monitor_service.h"
#include "report_proto.h"
#include "watch_streams.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;

// Requests are small.
constexpr int kMaxRequestBytes = 64 << 10;
constexpr size_t kMaxMemoryBytes = size_t{64} << 20;
// Reflection is a synchronous service: it needs one polling thread and one thread per call.
constexpr int kMaxThreads = 8;
// Streams per connection; further calls wait. Each open stream costs about 17 KB.
constexpr int kMinStreams = 128;
// Notices a vanished client after about a minute. Reports may be hours apart, so pings are sent
// even without data in between.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 30'000;
constexpr int kHandshakeTimeoutMs = 5'000;
constexpr int kMaxIdleMs = 600'000;  // without a call
constexpr unsigned kCertificatesReadAgainSeconds = 10;
// Time for unary calls in progress at shutdown to complete.
constexpr milliseconds kLastAnswers{100};

// gRPC reads the files itself, and again after they are replaced.
std::shared_ptr<grpc::ServerCredentials> Credentials(const ServerSecurity& security) {
  if (!security.tls()) return grpc::InsecureServerCredentials();
  namespace tls = grpc::experimental;
  const auto files = std::make_shared<tls::FileWatcherCertificateProvider>(
      security.private_key_file, security.certificate_file, security.client_ca_file,
      kCertificatesReadAgainSeconds);
  tls::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (!security.client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

// grpc/health/v1/health.proto. gRPC lists its health service through reflection but provides no
// descriptor, so generic clients fail.
constexpr char kHealthFile[] = R"(
  name: "grpc/health/v1/health.proto" package: "grpc.health.v1" syntax: "proto3"
  message_type { name: "HealthCheckRequest"
    field { name: "service" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
  message_type { name: "HealthCheckResponse"
    field { name: "status" number: 1 label: LABEL_OPTIONAL type: TYPE_ENUM
            type_name: ".grpc.health.v1.HealthCheckResponse.ServingStatus" }
    enum_type { name: "ServingStatus"
      value { name: "UNKNOWN" number: 0 } value { name: "SERVING" number: 1 }
      value { name: "NOT_SERVING" number: 2 } value { name: "SERVICE_UNKNOWN" number: 3 } } }
  service { name: "Health"
    method { name: "Check" input_type: ".grpc.health.v1.HealthCheckRequest"
             output_type: ".grpc.health.v1.HealthCheckResponse" }
    method { name: "Watch" input_type: ".grpc.health.v1.HealthCheckRequest"
             output_type: ".grpc.health.v1.HealthCheckResponse" server_streaming: true } })";

// Registers the descriptor the way generated code does, unless this process links the generated
// code.
bool DescribeHealth() {
  using google::protobuf::DescriptorPool;
  google::protobuf::FileDescriptorProto file;
  if (!google::protobuf::TextFormat::ParseFromString(kHealthFile, &file) ||
      DescriptorPool::generated_pool()->FindFileByName(file.name()) != nullptr) {
    return false;
  }
  static const std::string* const bytes = new std::string(file.SerializeAsString());
  DescriptorPool::InternalAddGeneratedFile(bytes->data(), static_cast<int>(bytes->size()));
  return true;
}

void SetLimits(int max_streams, grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("ptqwatch");
  quota.SetMaxThreads(kMaxThreads).Resize(kMaxMemoryBytes);
  builder.SetResourceQuota(quota)
      .SetMaxReceiveMessageSize(kMaxRequestBytes)
      // A request of 64 KiB would be unpacked to 64 MB before its size is checked.
      .SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false)
      .SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false)
      .SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1)
      .SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1)
      .SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1)
      // Otherwise two servers could share a port.
      .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
      .AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs)
      .AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs)
      .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, std::max(max_streams, kMinStreams))
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                          kMinPingIntervalMs);
}

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(const Options& options, const ServedRuns* runs)
      : runs_(runs),
        streams_(static_cast<size_t>(options.max_subscribers)),
        service_(runs, &streams_, options.allow_control, options.token) {}
  ~GrpcServerImpl() override { Stop(milliseconds(0)); }

  absl::Status Listen(const Options& options) {
    int port = 0;
    std::string numeric;
    {
      // Binds first for a useful error, as gRPC does not say why it cannot bind. The socket is
      // closed again before gRPC binds.
      PTQWATCH_ASSIGN_OR_RETURN(const BoundSocket free, BindListenAddress(options.listen));
      const bool any_port = options.listen.address.ends_with(":0");
      numeric = StrCat(free.numeric_host(), ":", any_port ? 0 : free.port());
    }
    grpc::EnableDefaultHealthCheckService(true);
    [[maybe_unused]] static const bool described = DescribeHealth();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    SetLimits(options.max_subscribers, builder);
    builder.AddListeningPort(numeric, Credentials(options.security), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    const std::string& given = options.listen.address;
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(StrCat("grpc address '", given, "': gRPC cannot listen there"));
    }
    PTQWATCH_ASSIGN_OR_RETURN(inbound_, InboundLimit::Start(port));
    address_ = StrCat(given.substr(0, given.rfind(':')), ":", port);
    SetHealth(false);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Wake() override {
    streams_.Wake();
    const bool serving = runs_->any_open();
    MutexLock lock(mutex_);
    if (server_ != nullptr && serving_ != serving) SetHealth(serving);
  }

  void Stop(milliseconds deadline) override {
    std::unique_ptr<grpc::Server> server;
    {
      MutexLock lock(mutex_);
      server = std::move(server_);
    }
    if (server == nullptr) return;
    server->GetHealthCheckService()->Shutdown();
    streams_.Wake();
    streams_.WaitUntilNone(std::chrono::steady_clock::now() + deadline);
    server->Shutdown(std::chrono::system_clock::now() + std::min(deadline, kLastAnswers));
  }

 private:
  void SetHealth(bool serving) {
    serving_ = serving;
    grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(v1::MonitorService::service_full_name(), serving);
  }

  const ServedRuns* const runs_;
  WatchStreams streams_;
  MonitorService service_;
  std::string address_;
  std::unique_ptr<InboundLimit> inbound_;
  Mutex mutex_;  // guards the members below once serving
  bool serving_ = false;
  std::unique_ptr<grpc::Server> server_;  // last: it uses the service
};

}  // namespace

void AddProtoForms(ReportForms& forms) {
  for (const bool with_layers : {true, false}) {
    const ReportForm form = with_layers ? ReportForm::kProto : ReportForm::kProtoWithoutLayers;
    forms[static_cast<size_t>(form)] = [with_layers](const AnalyzedReport& report) {
      v1::Report message;
      ToProto(report, &message, with_layers);
      return message.SerializeAsString();
    };
  }
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(Options options,
                                                              const ServedRuns* runs) {
  auto server = std::make_unique<GrpcServerImpl>(options, runs);
  PTQWATCH_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace ptqwatch::internal
