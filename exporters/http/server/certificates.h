#ifndef PTQWATCH_HTTP_SERVER_CERTIFICATES_H_
#define PTQWATCH_HTTP_SERVER_CERTIFICATES_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "boost/asio/ssl/context.hpp"
#include "ptqwatch/server_security.h"

namespace ptqwatch::internal {

/// The TLS context of a server, reloaded when its files are replaced. Not thread-safe.
class Certificates {
 public:
  using Context = std::shared_ptr<boost::asio::ssl::context>;

  /// Loads the files of `security`. InvalidArgument names the file that OpenSSL rejects. REQUIRES:
  /// security.tls(), and CheckSecurity accepted it.
  static absl::StatusOr<std::unique_ptr<Certificates>> Read(const ServerSecurity& security,
                                                            std::chrono::milliseconds interval);

  /// Returns a context made from files at most `interval` old. If replaced files cannot be used,
  /// logs why and keeps the previous context.
  Context Newest();

 private:
  Certificates(const ServerSecurity& security, std::chrono::milliseconds interval)
      : security_(security), interval_(interval) {}
  // Identifies the versions of the files, to detect a replacement.
  std::string Files() const;
  absl::Status ReadReplaced();

  const ServerSecurity security_;
  const std::chrono::milliseconds interval_;
  RateLimitedLog unusable_{std::chrono::minutes(10)};
  Context context_;
  std::string files_;  // the Files() that `context_` was made from
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_SERVER_CERTIFICATES_H_
