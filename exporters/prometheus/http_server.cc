#include "http_server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/net_address.h"
#include "base/signals.h"
#include "base/strings.h"
#include "base/worker.h"
#include "httplib.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kWorkers = 4;
constexpr size_t kMaxWaiting = 16;  // connections that no worker has yet; more are closed at once
constexpr int kBacklog = 64;        // connections that accept() has not seen yet
constexpr auto kRequestTimeout = std::chrono::seconds(5);
constexpr auto kResponseTimeout = std::chrono::seconds(10);  // Prometheus gives up a scrape then
constexpr size_t kMaxRequestBytes = size_t{64} << 10;

std::string ErrnoText(int error) { return std::generic_category().message(error); }

// httplib's constructor sets SIGPIPE to be ignored in the whole process. That is the host's to
// decide, so it is put back; nothing here needs it, since no write of ours raises the signal.
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

// A connection as httplib reads and writes it. Its own stream has no limit on a whole request (a
// byte every few seconds keeps it going), raises SIGPIPE, and refuses descriptors above 1023.
class Connection final : public httplib::Stream {
 public:
  explicit Connection(int socket)
      : socket_(socket), read_until_(steady_clock::now() + kRequestTimeout) {}

  bool is_readable() const override { return begin_ < end_ || Wait(POLLIN, read_until_); }
  bool is_writable() const override {
    return Wait(POLLOUT, steady_clock::now() + kResponseTimeout);
  }

  ssize_t read(char* out, size_t size) override {
    if (begin_ == end_) {
      if (total_ >= kMaxRequestBytes || !Wait(POLLIN, read_until_)) return -1;
      const ssize_t got = recv(socket_, buffer_, sizeof(buffer_), MSG_DONTWAIT);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      total_ += end_;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(out, buffer_ + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* bytes, size_t size) override {
    // One deadline for the whole response, from its first byte on.
    if (!write_until_) write_until_ = steady_clock::now() + kResponseTimeout;
    while (Wait(POLLOUT, *write_until_)) {
      const ssize_t sent = send(socket_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return sent;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return -1;
    }
    return -1;
  }

  // No handler looks at addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  // httplib only compares it with FD_SETSIZE, for a select() that is not used here.
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  bool Wait(short events, steady_clock::time_point until) const {
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
      if (left <= 0) return false;
      pollfd waiting{socket_, events, 0};
      const int ready = poll(&waiting, 1, static_cast<int>(left));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  const int socket_;
  const steady_clock::time_point read_until_;
  std::optional<steady_clock::time_point> write_until_;
  char buffer_[4096];
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t total_ = 0;
};

struct Listener {
  int socket = -1;
  int port = 0;
};

// Does not use httplib's own binding: that sets SO_REUSEPORT, with which a second server on a busy
// port gets half of the connections instead of an error, and it does not say why it failed.
absl::StatusOr<Listener> Listen(const std::string& address, const HostPort& target) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (resolved != 0) {
    const std::string reason = resolved == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(resolved);
    return absl::UnavailableError(
        StrCat("http address '", address, "': cannot resolve '", target.host, "': ", reason));
  }
  absl::Cleanup free_found = [found] { freeaddrinfo(found); };

  std::string reason = "no usable address";
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int socket =
        ::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol);
    if (socket < 0) {
      reason = ErrnoText(errno);
      continue;
    }
    // A trainer that restarts must not wait for connections of its former self to time out.
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (bind(socket, entry->ai_addr, entry->ai_addrlen) == 0 && listen(socket, kBacklog) == 0 &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      const in_port_t port = bound.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                 : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
      return Listener{socket, ntohs(port)};
    }
    reason = ErrnoText(errno);
    close(socket);
  }
  return absl::UnavailableError(StrCat("http address '", address, "': cannot bind: ", reason));
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Listener listener, std::string address, std::map<std::string, Handler> routes)
      : address_(std::move(address)),
        routes_(std::move(routes)),
        listener_(listener.socket),
        engine_(Engine::Make()) {
    // Routing here and not by httplib's patterns: no regular expression sees what a client sends.
    engine_->set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Route(request, response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }
  ~Impl() { Stop(); }

  const std::string& address() const { return address_; }

  absl::Status StartThreads() {
    // Signals sent to the process are for the trainer's threads.
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
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      if (listener_ >= 0) shutdown(listener_, SHUT_RDWR);  // ends accept(), which close() would not
      for (int socket : active_) shutdown(socket, SHUT_RDWR);
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
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
      std::unique_lock<std::mutex> lock(mutex_);
      if (stopping_) {
        if (socket >= 0) close(socket);
        return;
      }
      if (socket >= 0) {
        if (waiting_.size() < kMaxWaiting) {
          waiting_.push_back(socket);
          changed_.notify_all();
        } else {
          close(socket);
        }
      } else if (error != EINTR && error != ECONNABORTED) {
        // Out of descriptors, most likely: the connection stays in the backlog, and trying again at
        // once would only burn a core.
        changed_.wait_for(lock, milliseconds(100), [this] { return stopping_; });
      }
    }
  }

  void Work() {
    pthread_setname_np(pthread_self(), "ptqw-http");
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const int socket = waiting_.front();
      waiting_.pop_front();
      active_.insert(socket);
      lock.unlock();
      Serve(socket);
      lock.lock();
      active_.erase(socket);
      close(socket);
    }
  }

  void Serve(int socket) {
    try {
      Connection connection(socket);
      bool closed = false;
      // One request a connection: a scraper comes every few seconds, and an idle connection would
      // hold one of four workers.
      // Ranges are ignored: thousands of them in one request would make httplib copy the page as
      // often.
      engine_->process_request(connection, /*close_connection=*/true, closed,
                               [](httplib::Request& request) { request.ranges.clear(); });
    } catch (const std::exception&) {
      // Out of memory, say. The client sees its connection close; the trainer sees nothing.
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

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<int> waiting_;
  std::set<int> active_;
  std::vector<std::thread> threads_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }
void HttpServer::Stop() { impl_->Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, std::map<std::string, Handler> routes) {
  absl::StatusOr<HostPort> target = ParseHostPort("http", address);
  if (!target.ok()) return target.status();
  absl::StatusOr<Listener> listener = Listen(address, *target);
  if (!listener.ok()) return listener.status();
  const std::string bound = StrCat(address.substr(0, address.rfind(':')), ":", listener->port);
  auto impl = std::make_unique<Impl>(*listener, bound, std::move(routes));
  if (absl::Status status = impl->StartThreads(); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace ptqwatch::internal
