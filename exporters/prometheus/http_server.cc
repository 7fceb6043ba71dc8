#include "http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/listener.h"
#include "base/mutex.h"
#include "base/net_address.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"
#include "first_byte_wait.h"

namespace ptqwatch::internal {
namespace {

constexpr int kWorkers = 4;
constexpr size_t kMaxWaiting = 64;  // for a worker; further connections are closed at once
constexpr std::chrono::seconds kMostSilence{5};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(std::string address, std::map<std::string, Handler> routes, std::unique_ptr<TlsContext> tls)
      : address_(std::move(address)), responder_(std::move(routes)), tls_(std::move(tls)) {}
  ~Impl() { Stop(); }

  const std::string& address() const { return address_; }

  absl::Status StartThreads(BoundSocket socket) {
    for (int i = 0; i < kWorkers; ++i) {
      PTQWATCH_ASSIGN_OR_RETURN(Thread thread, StartThread("ptqw-http", [this] { Work(); }));
      threads_.push_back(std::move(thread));
    }
    PTQWATCH_ASSIGN_OR_RETURN(
        silent_, FirstByteWait::Start(kMostSilence, [this](int connection) { Take(connection); }));
    PTQWATCH_ASSIGN_OR_RETURN(
        listener_,
        Listener::Start(std::move(socket), "ptqw-http", StrCat("http address '", address_, "'"),
                        [this](int connection) { silent_->Add(connection); }));
    return absl::OkStatus();
  }

  void Stop() {
    if (!process_.here()) return;  // in a child of fork() there are no threads to end
    if (listener_ != nullptr) listener_->Stop();
    if (silent_ != nullptr) silent_->Stop();
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      for (int socket : active_) shutdown(socket, SHUT_RDWR);
      changed_.SignalAll();
    }
    for (Thread& thread : threads_) thread.Join();
    threads_.clear();
    MutexLock lock(mutex_);
    for (int socket : waiting_) close(socket);
    waiting_.clear();
  }

 private:
  void Take(int socket) {
    MutexLock lock(mutex_);
    if (stopping_ || waiting_.size() >= kMaxWaiting) {
      close(socket);
      return;
    }
    waiting_.push_back(socket);
    changed_.SignalAll();
  }

  void Work() {
    MutexLock lock(mutex_);
    while (true) {
      while (!stopping_ && waiting_.empty()) changed_.Wait(mutex_);
      if (stopping_) return;
      const int socket = waiting_.front();
      waiting_.pop_front();
      active_.insert(socket);
      lock.Unlock();
      Serve(socket);
      lock.Lock();
    }
  }

  // Null where memory is short: nothing is said without TLS where there should be some.
  std::unique_ptr<Channel> MakeChannel(int socket) {
    std::unique_ptr<Channel> channel;
    (void)Guard([&] {
      TlsSession session = tls_ == nullptr ? nullptr : tls_->NewSession();
      if (tls_ != nullptr && session == nullptr) return absl::ResourceExhaustedError("TLS");
      channel = std::make_unique<Channel>(socket, std::move(session));
      return absl::OkStatus();
    });
    return channel;
  }

  // Stop must not touch a socket that is somebody else's.
  void Serve(int socket) {
    std::unique_ptr<Channel> channel = MakeChannel(socket);
    const auto forget = [this, socket] {
      MutexLock lock(mutex_);
      active_.erase(socket);
    };
    if (channel == nullptr) {
      forget();
      close(socket);
      return;
    }
    responder_.Serve(channel, forget);
    if (channel != nullptr) forget();
  }

  const ProcessMark process_;
  const std::string address_;
  HttpResponder responder_;
  const std::unique_ptr<TlsContext> tls_;  // null: none

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<int> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<int> active_ ABSL_GUARDED_BY(mutex_);
  std::vector<Thread> threads_;
  std::unique_ptr<FirstByteWait> silent_;
  std::unique_ptr<Listener> listener_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }
void HttpServer::Stop() { impl_->Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ListenOptions& options,
                                                              std::map<std::string, Handler> routes,
                                                              std::unique_ptr<TlsContext> tls) {
  // Not httplib's own binding: that sets SO_REUSEPORT, with which a second server on a busy port
  // gets half of the connections instead of an error, and it does not say why it failed.
  PTQWATCH_ASSIGN_OR_RETURN(BoundSocket socket, BindListenAddress(options));
  const std::string host = options.address.substr(0, options.address.rfind(':'));
  std::string bound = StrCat(host, ":", socket.port());
  auto impl = std::make_unique<Impl>(std::move(bound), std::move(routes), std::move(tls));
  PTQWATCH_RETURN_IF_ERROR(impl->StartThreads(std::move(socket)));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace ptqwatch::internal
