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

/// The certificates of a server, read again when their files are replaced. One thread at a time.
class Certificates {
 public:
  using Context = std::shared_ptr<boost::asio::ssl::context>;

  /// REQUIRES: security.tls(), and CheckSecurity has found nothing. InvalidArgument names the file.
  static absl::StatusOr<std::unique_ptr<Certificates>> Read(const ServerSecurity& security,
                                                            std::chrono::milliseconds interval);

  /// With the files as they were at most `interval` ago. Files that cannot be used are logged, and
  /// the former ones stay.
  Context Newest();

 private:
  Certificates(const ServerSecurity& security, std::chrono::milliseconds interval)
      : security_(security), interval_(interval) {}
  // Which files there are, to compare.
  std::string Files() const;
  absl::Status ReadReplaced();

  const ServerSecurity security_;
  const std::chrono::milliseconds interval_;
  RateLimitedLog unusable_{std::chrono::minutes(10)};
  Context context_;
  std::string files_;  // of `context_`
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HTTP_SERVER_CERTIFICATES_H_
