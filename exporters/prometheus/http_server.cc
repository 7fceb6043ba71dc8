#include "http_server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <exception>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/net_address.h"
#include "base/signals.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "http_connection.h"
#include "httplib.h"

namespace ptqwatch::internal {
namespace {

constexpr int kWorkers = 4;
constexpr size_t kMaxWaiting = 16;  // for a worker; further connections are closed at once
constexpr int kBacklog = 64;        // not accepted yet
constexpr auto kRetryInterval = std::chrono::milliseconds(100);

// httplib's constructor ignores SIGPIPE in the whole process. That is the trainer's decision, so
// the disposition is restored; our own writes never raise the signal.
class Engine final : public httplib::Server {
 public:
  static std::unique_ptr<Engine> Make() {
    struct sigaction before {};
    sigaction(SIGPIPE, nullptr, &before);
    auto engine = std::make_unique<Engine>();
    sigaction(SIGPIPE, &before, nullptr);
    return engine;
  }
  using httplib::Server::process_request;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(BoundSocket listener, std::string address, std::map<std::string, Handler> routes)
      : address_(std::move(address)),
        routes_(std::move(routes)),
        listener_(listener.Release()),
        engine_(Engine::Make()) {
    // Routed here instead of by httplib's patterns, so that no regular expression sees what a
    // client sends.
    engine_->set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Route(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }
  ~Impl() { Stop(); }

  const std::string& address() const { return address_; }

  absl::Status StartThreads() {
    // Signals sent to the process are for the trainer's threads to handle.
    BlockSignals block;
    try {
      threads_.emplace_back([this] { Accept(); });
      for (int i = 0; i < kWorkers; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error& error) {
      Stop();
      return absl::ResourceExhaustedError(
          StrCat("http address '", address_, "': cannot start a thread: ", error.what()));
    }
    return absl::OkStatus();
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      if (listener_ >= 0) shutdown(listener_, SHUT_RDWR);  // ends accept(), which close() would not
      for (int socket : active_) shutdown(socket, SHUT_RDWR);
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    MutexLock lock(mutex_);
    for (int socket : waiting_) close(socket);
    waiting_.clear();
    if (listener_ >= 0) close(std::exchange(listener_, -1));
  }

 private:
  void Accept() {
    pthread_setname_np(pthread_self(), "ptqw-http");
    while (true) {
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int error = errno;
      MutexLock lock(mutex_);
      if (stopping_) {
        if (socket >= 0) close(socket);
        return;
      }
      if (socket >= 0) {
        if (waiting_.size() < kMaxWaiting) {
          waiting_.push_back(socket);
          changed_.SignalAll();
        } else {
          close(socket);
        }
      } else if (error != EINTR && error != ECONNABORTED) {
        // Most likely out of descriptors: the connection stays in the backlog, and trying again at
        // once would only burn a core.
        const auto retry = std::chrono::steady_clock::now() + kRetryInterval;
        while (!stopping_ && changed_.WaitUntil(mutex_, retry)) {
        }
      }
    }
  }

  void Work() {
    pthread_setname_np(pthread_self(), "ptqw-http");
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
      active_.erase(socket);
      close(socket);
    }
  }

  void Serve(int socket) {
    try {
      HttpConnection connection(socket);
      bool closed = false;
      // One request per connection: an idle connection would hold one of the few workers between
      // scrapes. Ranges are ignored: httplib would copy the page once for each of them, and a
      // request may ask for thousands.
      engine_->process_request(connection, /*close_connection=*/true, closed,
                               [](httplib::Request& request) { request.ranges.clear(); });
    } catch (const std::exception&) {
      // For example out of memory. The client sees its connection close, the trainer sees nothing.
    }
  }

  void Route(const httplib::Request& request, httplib::Response& response) {
    const auto route = routes_.find(request.path);
    HttpResponse answer;
    if (route == routes_.end()) {
      answer = {.status = 404, .body = "not found\n"};
    } else if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      answer = {.status = 405, .body = "method not allowed\n"};
    } else {
      answer = route->second();
    }
    response.status = answer.status;
    response.set_content(std::move(answer.body), answer.content_type);
  }

  const std::string address_;
  const std::map<std::string, Handler> routes_;
  int listener_;
  const std::unique_ptr<Engine> engine_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<int> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<int> active_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }
void HttpServer::Stop() { impl_->Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const ListenOptions& options, std::map<std::string, Handler> routes) {
  // Not httplib's own binding: that sets SO_REUSEPORT, with which a second server on a busy port
  // gets half of the connections instead of an error, and it does not say why it failed.
  PTQWATCH_ASSIGN_OR_RETURN(BoundSocket listener, BindListenAddress(options));
  if (listen(listener.descriptor(), kBacklog) != 0) {
    return absl::UnavailableError(StrCat("http address '", options.address, "': cannot listen: ",
                                         std::generic_category().message(errno)));
  }
  const std::string host = options.address.substr(0, options.address.rfind(':'));
  std::string bound = StrCat(host, ":", listener.port());
  auto impl = std::make_unique<Impl>(std::move(listener), std::move(bound), std::move(routes));
  PTQWATCH_RETURN_IF_ERROR(impl->StartThreads());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace ptqwatch::internal
