#include "http/server/http_connection.h"

#include <cstddef>

#include "boost/asio/buffer.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/core/detect_ssl.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/write.hpp"

namespace ptqwatch::internal {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kMaxHeaderBytes = size_t{64} << 10;  // browsers send all cookies of a host
constexpr size_t kMaxBodyBytes = size_t{64} << 10;    // no handler reads the body
constexpr std::chrono::seconds kGoodbye{2};

HttpRequest RequestOf(const http::request<http::string_body>& message) {
  const auto header = [&](http::field name) { return std::string(message[name]); };
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = "",
                      .parameters = {},
                      .host = header(http::field::host),
                      .origin = header(http::field::origin),
                      .authorization = header(http::field::authorization),
                      .accept = header(http::field::accept),
                      .accept_encoding = header(http::field::accept_encoding),
                      .if_none_match = header(http::field::if_none_match),
                      .last_event_id = std::string(message["Last-Event-ID"])};
  SetTarget(request, {message.target().data(), message.target().size()});
  return request;
}

// The HTTP status for a read error; 0 if the connection failed or ended and cannot be answered.
int StatusOf(const error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  const bool is_http = error.category() == error_code(http::error::bad_target).category();
  return is_http && error != http::error::end_of_stream ? 400 : 0;
}

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, Certificates::Context tls,
                               Connections* all)
    : all_(*all),
      list_(&all->clients),
      place_(list_->insert(list_->end(), this)),
      tls_(std::move(tls)),
      channel_(std::move(socket)) {}

void HttpConnection::MoveTo(std::list<HttpConnection*>& list) {
  list.splice(list.end(), *list_, place_);
  list_ = &list;
}

void HttpConnection::Start() {
  Expect(all_.patience);
  beast::async_detect_ssl(
      channel_.tcp(), buffer_, [self = shared_from_this()](error_code error, bool client_has_tls) {
        HttpConnection& here = *self;
        if (error) return here.Drop();
        if (client_has_tls && here.tls_ != nullptr) return here.Handshake();
        if (!client_has_tls && here.tls_ == nullptr) return here.Read();
        here.Refuse(400, client_has_tls ? "this server does not speak TLS: use http://\n"
                                        : "this server speaks TLS: use https://\n");
      });
}

void HttpConnection::Handshake() {
  channel_.StartTls(*tls_).async_handshake(
      asio::ssl::stream_base::server, buffer_.data(),
      [self = shared_from_this()](error_code error, size_t used) {
        self->buffer_.consume(used);
        if (!error) return self->Read();
        // Lets the client read the TLS alert with the reason.
        self->Expect(kGoodbye);
        self->ReadToTheEnd();
      });
}

void HttpConnection::Read() {
  Expect(all_.patience);
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(kMaxBodyBytes);
  http::async_read(channel_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, size_t) { self->OnRead(error); });
}

void HttpConnection::OnRead(error_code error) {
  if (error) {
    const int status = StatusOf(error);
    return status == 0 ? Finish() : Refuse(status, "the request cannot be read\n");
  }
  MoveTo(all_.clients);
  const auto& message = parser_->get();
  HttpResponse answer = all_.handler(RequestOf(message));
  const bool head = message.method() == http::verb::head;
  if (!head) stream_ = std::move(answer.stream);
  Write(std::move(answer), message.version(), message.keep_alive() && !stream_, head);
}

void HttpConnection::Refuse(int status, const std::string& text) {
  Write({.status = status, .body = text}, /*version=*/11, /*keep_alive=*/false, /*head=*/false);
}

void HttpConnection::Write(HttpResponse answer, unsigned version, bool keep_alive, bool head) {
  message_ = Message(http::int_to_status(static_cast<unsigned>(answer.status)), version);
  message_.set(http::field::content_type, answer.content_type);
  for (const auto& [name, value] : answer.headers) message_.insert(name, value);
  message_.keep_alive(keep_alive);
  if (!stream_ && answer.status != 304) message_.content_length(answer.body.size());
  if (!head) message_.body() = std::move(answer.body);
  Expect(all_.patience);
  http::async_write(channel_, message_,
                    [self = shared_from_this(), keep_alive](error_code error, size_t) {
                      if (error) return self->Drop();
                      self->message_ = {};
                      if (self->stream_) return self->BeginStream();
                      keep_alive ? self->Read() : self->Finish();
                    });
}

void HttpConnection::BeginStream() {
  MoveTo(all_.streams);
  // The client sends nothing more, so this read ends when the client disconnects.
  channel_.tcp().expires_never();
  channel_.async_read_some(asio::buffer(ignored_), [self = shared_from_this()](error_code, size_t) {
    self->ending_ ? self->Finish() : self->Drop();
  });
  Continue();
}

void HttpConnection::Continue() {
  if (writing_ || ending_ || !stream_) return;
  std::optional<std::string> part = stream_();
  if (!part) {
    ending_ = true;
    channel_.tcp().cancel();  // cancels the read, whose handler calls Finish
    return;
  }
  if (part->empty()) return;
  part_ = *std::move(part);
  writing_ = true;
  Expect(all_.patience);
  asio::async_write(channel_, asio::buffer(part_),
                    [self = shared_from_this()](error_code error, size_t) {
                      if (error) return self->Drop();
                      self->writing_ = false;
                      self->Continue();
                    });
}

void HttpConnection::Finish() {
  Expect(kGoodbye);
  if (channel_.tls() == nullptr) return ReadToTheEnd();
  channel_.tls()->async_shutdown([self = shared_from_this()](error_code) { self->Drop(); });
}

void HttpConnection::ReadToTheEnd() {
  error_code ignored;
  channel_.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  channel_.tcp().async_read_some(
      asio::buffer(ignored_), [self = shared_from_this()](error_code error, size_t size) {
        self->unread_ += size;
        // A client that keeps sending would never hit the deadline.
        error || self->unread_ > kMaxBodyBytes ? self->Drop() : self->ReadToTheEnd();
      });
}

void HttpConnection::Drop() {
  stream_ = nullptr;
  channel_.tcp().close();
  MoveTo(all_.dropped);
}

}  // namespace ptqwatch::internal
