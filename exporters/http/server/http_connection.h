#ifndef PTQWATCH_HTTP_SERVER_HTTP_CONNECTION_H_
#define PTQWATCH_HTTP_SERVER_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "http/http_message.h"
#include "http/server/certificates.h"

namespace ptqwatch::internal {

class HttpConnection;

/// The connections of a server and their shared state. Used on the server's thread only.
struct Connections {
  HttpHandler handler;
  std::chrono::milliseconds patience;
  std::list<HttpConnection*> clients = {};  ///< least recent request first
  std::list<HttpConnection*> streams = {};
  std::list<HttpConnection*> dropped = {};  ///< until their last operation ends
};

/// An Asio stream: a TCP socket, with TLS on top after StartTls.
class Channel {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using Tls = boost::asio::ssl::stream<boost::beast::tcp_stream&>;

  explicit Channel(boost::asio::ip::tcp::socket socket) : tcp_(std::move(socket)) {}

  executor_type get_executor() { return tcp_.get_executor(); }
  boost::beast::tcp_stream& tcp() { return tcp_; }
  /// Null before StartTls.
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }
  Tls& StartTls(boost::asio::ssl::context& context) { return tls_.emplace(tcp_, context); }

  template <typename Buffers, typename Done>
  void async_read_some(const Buffers& buffers, Done&& done) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Done>(done));
    tcp_.async_read_some(buffers, std::forward<Done>(done));
  }
  template <typename Buffers, typename Done>
  void async_write_some(const Buffers& buffers, Done&& done) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Done>(done));
    tcp_.async_write_some(buffers, std::forward<Done>(done));
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::optional<Tls> tls_;
};

/// A client's connection. Handles one request at a time until a side closes it or an answer becomes
/// a stream. Each pending operation keeps the connection alive.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  /// If `tls` is null, the server speaks plain HTTP. A client that uses TLS when the server does
  /// not, or the reverse, gets 400 in plain HTTP.
  HttpConnection(boost::asio::ip::tcp::socket socket, Certificates::Context tls, Connections* all);
  ~HttpConnection() { list_->erase(place_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void Start();
  /// Sends the next part of the stream. Does nothing while the previous part is being sent.
  void Continue();
  /// Closes the socket at once.
  void Drop();

 private:
  using Message = boost::beast::http::response<boost::beast::http::string_body>;

  void Handshake();
  void Read();
  void OnRead(boost::system::error_code error);
  void Refuse(int status, const std::string& text);
  void Write(HttpResponse answer, unsigned version, bool keep_alive, bool head);
  void BeginStream();
  // Ends the connection once the client has everything that was sent. Closing a socket with unread
  // input would reset it.
  void Finish();
  void ReadToTheEnd();
  void MoveTo(std::list<HttpConnection*>& list);
  void Expect(std::chrono::milliseconds within) { channel_.tcp().expires_after(within); }

  Connections& all_;
  std::list<HttpConnection*>* list_;
  std::list<HttpConnection*>::iterator place_;
  const Certificates::Context tls_;
  Channel channel_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  Message message_;
  std::function<std::optional<std::string>()> stream_;
  std::string part_;  // the part of the stream being sent
  bool writing_ = false;
  bool ending_ = false;
  size_t unread_ = 0;  // bytes received after the last answer
  char ignored_[4096];
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_SERVER_HTTP_CONNECTION_H_
