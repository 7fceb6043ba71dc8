#include "health_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/server_context.h"
// Generated code knows where this gRPC has its callback handlers.
#include "ptqwatch/v1/monitor_service.grpc.pb.h"

namespace ptqwatch::internal {

using wire::HealthCheckRequest;
using wire::HealthCheckResponse;

namespace {

constexpr size_t kMaxWatchers = 64;

class Refusal final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Refusal() {
    Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watch health already"));
  }
  void OnDone() override { delete this; }
};

}  // namespace

// One Watch. Its members are guarded by the service's mutex; as in ReportFeed, a watcher that is
// marked as writing or finished lives until the call that the mark announces.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* health, std::string name) : service(health), watched(std::move(name)) {}

  // What is to be done with it once the lock is let go.
  enum class Action { kNothing, kWrite, kFinish };
  Action Next() {
    service->mutex_.AssertHeld();
    if (writing || finished) return Action::kNothing;
    const HealthService::Status now = service->StatusOf(watched);
    if (!cancelled && told != now) {
      told = now;
      message.set_status(now);
      writing = true;
      return Action::kWrite;
    }
    finished = cancelled || service->closed_;
    return finished ? Action::kFinish : Action::kNothing;
  }
  void Perform(Action action) {
    if (action == Action::kWrite) StartWrite(&message);
    if (action == Action::kFinish) {
      Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the monitor has stopped"));
    }
  }
  template <typename Change>
  void Update(Change change) {
    Action action;
    {
      MutexLock lock(service->mutex_);
      change();
      action = Next();
    }
    Perform(action);
  }

  void OnWriteDone(bool ok) override {
    Update([&] {
      writing = false;
      cancelled = cancelled || !ok;
    });
  }
  void OnCancel() override {
    Update([&] { cancelled = true; });
  }
  void OnDone() override {
    {
      MutexLock lock(service->mutex_);
      service->watchers_.erase(this);
    }
    delete this;
  }

  HealthService* const service;
  const std::string watched;
  std::optional<HealthService::Status> told;
  HealthCheckResponse message;
  bool writing = false;
  bool finished = false;
  bool cancelled = false;
};

HealthService::HealthService(std::set<std::string> services) : services_(std::move(services)) {
  // As the code that is generated for a service does.
  using grpc::internal::RpcMethod;
  AddMethod(new grpc::internal::RpcServiceMethod("/grpc.health.v1.Health/Check",
                                                 RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodCallback(
      0, new grpc::internal::CallbackUnaryHandler<HealthCheckRequest, HealthCheckResponse>(
             [this](grpc::CallbackServerContext* context, const HealthCheckRequest* request,
                    HealthCheckResponse* response) { return Check(context, request, response); }));
  AddMethod(new grpc::internal::RpcServiceMethod("/grpc.health.v1.Health/Watch",
                                                 RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodCallback(
      1,
      new grpc::internal::CallbackServerStreamingHandler<HealthCheckRequest, HealthCheckResponse>(
          [this](grpc::CallbackServerContext*, const HealthCheckRequest* request) {
            return Watch(request);
          }));
}

HealthService::~HealthService() = default;

void HealthService::SetServing(bool serving) {
  Update([&] {
    mutex_.AssertHeld();
    serving_ = serving && !closed_;
  });
}

void HealthService::Close() {
  Update([&] {
    mutex_.AssertHeld();
    serving_ = false;
    closed_ = true;
  });
}

template <typename Change>
void HealthService::Update(Change change) {
  std::vector<std::pair<Watcher*, Watcher::Action>> actions;
  {
    MutexLock lock(mutex_);
    change();
    for (Watcher* watcher : watchers_) actions.emplace_back(watcher, watcher->Next());
  }
  // Not those with nothing to do: gRPC may be done with them by now.
  for (const auto& [watcher, action] : actions) {
    if (action != Watcher::Action::kNothing) watcher->Perform(action);
  }
}

HealthService::Status HealthService::StatusOf(const std::string& service) const {
  if (!services_.contains(service)) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  {
    MutexLock lock(mutex_);
    response->set_status(StatusOf(request->service()));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool known = response->status() != HealthCheckResponse::SERVICE_UNKNOWN;
  reactor->Finish(known ? grpc::Status::OK
                        : grpc::Status(grpc::StatusCode::NOT_FOUND,
                                       "no service '" + request->service() + "' here"));
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    const HealthCheckRequest* request) {
  auto watcher = std::make_unique<Watcher>(this, request->service());
  {
    MutexLock lock(mutex_);
    if (watchers_.size() >= kMaxWatchers) return new Refusal;
    watchers_.insert(watcher.get());
  }
  Watcher* accepted = watcher.release();
  accepted->Update([] {});
  return accepted;
}

}  // namespace ptqwatch::internal
