#include "http/server/certificates.h"

#include <sys/stat.h>

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "openssl/ssl.h"
#include "security/check_security.h"

namespace ptqwatch::internal {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;
using std::chrono::steady_clock;

absl::Status Check(const error_code& error, const std::string& path, std::string_view what) {
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("'", path, "': ", what, ": ", error.message()));
}

absl::StatusOr<Certificates::Context> Load(const ServerSecurity& security) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  // Disables session resumption: scrapers do not use it, and a client's certificate must be checked
  // each time.
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  error_code error;
  // Keeps OpenSSL from asking for a passphrase on the terminal.
  context->set_password_callback([](size_t, ssl::context::password_purpose) { return ""; }, error);
  context->use_certificate_chain_file(security.certificate_file, error);
  PTQWATCH_RETURN_IF_ERROR(
      Check(error, security.certificate_file, "is not a certificate chain that OpenSSL accepts"));
  context->use_private_key_file(security.private_key_file, ssl::context::pem, error);
  PTQWATCH_RETURN_IF_ERROR(
      Check(error, security.private_key_file, "is not the key of the certificate"));
  const std::string& authorities = security.client_ca_file;
  if (authorities.empty()) return context;
  context->load_verify_file(authorities, error);
  PTQWATCH_RETURN_IF_ERROR(
      Check(error, authorities, "has no certificate authorities that OpenSSL accepts"));
  context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  // The list of names tells a browser which of its certificates to offer.
  SSL_CTX_set_client_CA_list(native, SSL_load_client_CA_file(authorities.c_str()));
  return context;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Read(
    const ServerSecurity& security, std::chrono::milliseconds interval) {
  std::unique_ptr<Certificates> made(new Certificates(security, interval));
  made->files_ = made->Files();
  made->next_look_ = steady_clock::now() + interval;
  PTQWATCH_ASSIGN_OR_RETURN(made->context_, Load(security));
  return made;
}

std::string Certificates::Files() const {
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

absl::Status Certificates::ReadReplaced() {
  const auto now = steady_clock::now();
  if (now < next_look_) return absl::OkStatus();
  next_look_ = now + interval_;
  std::string files = Files();
  if (files == files_) return absl::OkStatus();
  ServerSecurity replaced = security_;
  replaced.token_file = "";
  PTQWATCH_RETURN_IF_ERROR(CheckSecurity(replaced, "ServeOptions", false).status());
  PTQWATCH_ASSIGN_OR_RETURN(context_, Load(replaced));
  files_ = std::move(files);
  return absl::OkStatus();
}

Certificates::Context Certificates::Newest() {
  const absl::Status read = ReadReplaced();
  if (!read.ok()) {
    unusable_(Severity::kWarning,
              StrCat("http: the replaced certificate files cannot be used: ", Message(read)));
  }
  return context_;
}

}  // namespace ptqwatch::internal
