#include "http/server/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "http/server/http_connection.h"

namespace ptqwatch::internal {
namespace {

using boost::asio::ip::tcp;

constexpr size_t kMostClients = 64;
// Descriptors reserved for the files of the runs.
constexpr rlim_t kReservedDescriptors = 48;
constexpr std::chrono::milliseconds kAcceptAgain{100};
constexpr std::chrono::seconds kTick{1};

// Leaves the rest of the descriptors to streams and to the rest of the process.
size_t MostClients() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostClients;
  return std::clamp<size_t>(limit.rlim_cur / 8, 1, kMostClients);
}

// Linux assigns the lowest free number, so a number near the limit means that few are left.
bool IsOfTheLastDescriptors(int descriptor) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return static_cast<rlim_t>(descriptor) + kReservedDescriptors >= limit.rlim_cur;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const Options& options, HttpHandler handler)
      : connections_{.handler = std::move(handler), .patience = options.patience} {}

  absl::Status Start(const Options& options) {
    PTQWATCH_ASSIGN_OR_RETURN(BoundSocket socket, BindListenAddress(options.listen));
    const std::string& given = options.listen.address;
    address_ = StrCat(given.substr(0, given.rfind(':')), ":", socket.port());
    if (options.security.tls()) {
      PTQWATCH_ASSIGN_OR_RETURN(certificates_,
                                Certificates::Read(options.security, options.certificate_interval));
    }
    acceptor_.assign(socket.numeric_host().front() == '[' ? tcp::v6() : tcp::v4(),
                     socket.descriptor());
    socket.Release();
    boost::system::error_code error;
    acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(
          StrCat("http address '", given, "': cannot listen: ", error.message()));
    }
    Accept();
    Tick();
    PTQWATCH_ASSIGN_OR_RETURN(thread_, StartThread("ptqw-http", [this] { Run(); }));
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }
  // False in a forked child, which shares the descriptors of its parent and has no thread.
  bool here() const { return process_.here(); }

  void Wake() {
    if (woken_.exchange(true)) return;
    boost::asio::post(io_, [this] {
      woken_ = false;
      ContinueStreams();
    });
  }

  void Stop() {
    io_.stop();
    if (thread_.joinable()) thread_.Join();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (auto* list : {&connections_.clients, &connections_.streams}) {
      while (!list->empty()) list->front()->Drop();
    }
  }

 private:
  void Run() {
    while (!io_.stopped()) {
      const absl::Status status = Guard([this] {
        io_.run();
        return absl::OkStatus();
      });
      // The connection being served is gone; the others continue.
      if (!status.ok()) failed_(Severity::kWarning, StrCat("http: ", Message(status)));
    }
  }

  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error == boost::asio::error::operation_aborted) return;
      if (error) {  // no descriptor is left
        accept_again_.expires_after(kAcceptAgain);
        accept_again_.async_wait([this](boost::system::error_code) { Accept(); });
        return;
      }
      Accept();
      if (IsOfTheLastDescriptors(socket.native_handle())) return;
      if (connections_.clients.size() >= most_clients_) connections_.clients.front()->Drop();
      std::make_shared<HttpConnection>(
          std::move(socket), certificates_ ? certificates_->Newest() : nullptr, &connections_)
          ->Start();
    });
  }

  void Tick() {
    tick_.expires_after(kTick);
    tick_.async_wait([this](boost::system::error_code) {
      Tick();
      ContinueStreams();
    });
  }

  void ContinueStreams() {
    for (auto next = connections_.streams.begin(); next != connections_.streams.end();) {
      HttpConnection* const stream = *next++;  // Continue may remove it from the list
      stream->Continue();
    }
  }

  const ProcessMark process_;
  const size_t most_clients_ = MostClients();
  std::string address_;
  RateLimitedLog failed_;
  std::unique_ptr<Certificates> certificates_;  // null: no TLS
  Connections connections_;
  std::atomic<bool> woken_{false};
  boost::asio::io_context io_{1};  // its destructor releases the remaining connections
  tcp::acceptor acceptor_{io_};
  boost::asio::steady_timer accept_again_{io_};
  boost::asio::steady_timer tick_{io_};
  Thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  Stop();
  if (!impl_->here()) (void)impl_.release();
}

const std::string& HttpServer::address() const { return impl_->address(); }

void HttpServer::Wake() {
  if (impl_->here()) impl_->Wake();
}

void HttpServer::Stop() {
  if (impl_->here()) impl_->Stop();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                              HttpHandler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  PTQWATCH_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace ptqwatch::internal
