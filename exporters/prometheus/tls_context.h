#ifndef PTQWATCH_PROMETHEUS_TLS_CONTEXT_H_
#define PTQWATCH_PROMETHEUS_TLS_CONTEXT_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "openssl/ssl.h"
#include "ptqwatch/server_security.h"

namespace ptqwatch::internal {

struct FreeSession {
  void operator()(SSL* session) const { SSL_free(session); }
};
using TlsSession = std::unique_ptr<SSL, FreeSession>;

/// The certificates of a server, with which each connection begins its TLS. Thread-safe.
class TlsContext {
 public:
  /// How old what is known of the files may become.
  static constexpr std::chrono::seconds kLookInterval{10};

  /// REQUIRES: security.tls(), and CheckSecurity has found nothing. Errors name the file.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(
      const ServerSecurity& security, std::chrono::milliseconds look_interval = kLookInterval);

  /// Of a server, without a socket yet; null where memory is short. With the files as they are, at
  /// most `look_interval` ago: those that were replaced are read again, about 1 ms. Where they
  /// cannot be used, which is logged, the former ones stay.
  TlsSession NewSession();

 private:
  struct FreeContext {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  using Context = std::unique_ptr<SSL_CTX, FreeContext>;

  TlsContext(const ServerSecurity& security, std::chrono::milliseconds look_interval)
      : security_(security), look_interval_(look_interval) {}
  static absl::StatusOr<Context> Load(const ServerSecurity& security);
  // Which files there are, to compare.
  std::string Files() const;
  absl::Status ReadReplaced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServerSecurity security_;
  const std::chrono::milliseconds look_interval_;
  RateLimitedLog unusable_{std::chrono::minutes(10)};
  Mutex mutex_;
  Context context_ ABSL_GUARDED_BY(mutex_);
  std::string files_ ABSL_GUARDED_BY(mutex_);  // of `context_`
  std::chrono::steady_clock::time_point next_look_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_TLS_CONTEXT_H_
