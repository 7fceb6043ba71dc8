#include "tls_context.h"

#include <sys/stat.h>

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "openssl/err.h"
#include "security/check_security.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::steady_clock;

// No terminal is asked for a passphrase.
int NoPassphrase(char*, int, int, void*) { return 0; }

absl::Status Check(bool ok, const std::string& path, std::string_view what) {
  return ok ? absl::OkStatus() : absl::InvalidArgumentError(StrCat("'", path, "': ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Create(
    const ServerSecurity& security, std::chrono::milliseconds look_interval) {
  std::unique_ptr<TlsContext> made(new TlsContext(security, look_interval));
  MutexLock lock(made->mutex_);
  made->files_ = made->Files();
  made->next_look_ = steady_clock::now() + look_interval;
  // What OpenSSL notes of a failure is this thread's, which may be the trainer's.
  ERR_set_mark();
  absl::StatusOr<Context> loaded = Load(security);
  ERR_pop_to_mark();
  PTQWATCH_ASSIGN_OR_RETURN(made->context_, std::move(loaded));
  lock.Unlock();
  return made;
}

absl::StatusOr<TlsContext::Context> TlsContext::Load(const ServerSecurity& security) {
  Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  SSL_CTX* const made = context.get();
  SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
  // Nothing is kept of a connection that has ended: scrapers do not resume, and a client's
  // certificate is looked at each time.
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(made, 0);
  SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A stream that waits for a report holds no buffers, and what it sends may be cut anywhere.
  SSL_CTX_set_mode(made, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                             SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(made, NoPassphrase);
  const std::string& certificate = security.certificate_file;
  PTQWATCH_RETURN_IF_ERROR(Check(SSL_CTX_use_certificate_chain_file(made, certificate.c_str()) == 1,
                                 certificate, "is no certificate chain that OpenSSL serves"));
  const std::string& key = security.private_key_file;
  PTQWATCH_RETURN_IF_ERROR(
      Check(SSL_CTX_use_PrivateKey_file(made, key.c_str(), SSL_FILETYPE_PEM) == 1, key,
            "is not the key of the certificate"));
  const std::string& authorities = security.client_ca_file;
  if (authorities.empty()) return context;
  // The names tell a browser which of its certificates to offer.
  STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(authorities.c_str());
  SSL_CTX_set_client_CA_list(made, names);
  PTQWATCH_RETURN_IF_ERROR(Check(
      names != nullptr && SSL_CTX_load_verify_locations(made, authorities.c_str(), nullptr) == 1,
      authorities, "holds no authorities that OpenSSL accepts"));
  SSL_CTX_set_verify(made, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

std::string TlsContext::Files() const {
  std::string files;
  for (const std::string* path :
       {&security_.certificate_file, &security_.private_key_file, &security_.client_ca_file}) {
    struct stat file {};
    if (path->empty() || stat(path->c_str(), &file) != 0) file = {};
    files += StrCat(file.st_dev, " ", file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, " ",
                    file.st_mtim.tv_nsec, "\n");
  }
  return files;
}

absl::Status TlsContext::ReadReplaced() {
  const auto now = steady_clock::now();
  if (now < next_look_) return absl::OkStatus();
  next_look_ = now + look_interval_;
  std::string files = Files();
  if (files == files_) return absl::OkStatus();
  ServerSecurity replaced = security_;
  replaced.token_file = "";
  PTQWATCH_RETURN_IF_ERROR(CheckSecurity(replaced, "PrometheusOptions", false).status());
  PTQWATCH_ASSIGN_OR_RETURN(context_, Load(replaced));
  files_ = std::move(files);
  return absl::OkStatus();
}

TlsSession TlsContext::NewSession() {
  TlsSession session;
  absl::Status read;
  {
    MutexLock lock(mutex_);
    read = ReadReplaced();
    session.reset(SSL_new(context_.get()));
  }
  if (!read.ok()) {
    unusable_(Severity::kWarning,
              StrCat("http: replaced files are not served yet: ", Message(read)));
  }
  return session;
}

}  // namespace ptqwatch::internal
