#include "security/check_security.h"

#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "openssl/crypto.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/x509.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMinToken = 16;
constexpr size_t kMaxFile = size_t{1} << 20;
// A browser sends the token with a user name, in a header of up to 1 KiB.
constexpr size_t kMaxToken = 512;

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;

/// An option that names a file.
struct FileField {
  std::string name;
  const std::string& path;

  absl::Status Error(absl::StatusCode code, std::string_view what) const {
    return absl::Status(code, StrCat(name, " '", path, "': ", what));
  }
  absl::Status Invalid(std::string_view what) const {
    return Error(absl::StatusCode::kInvalidArgument, what);
  }
};

absl::StatusOr<std::string> Read(const FileField& field) {
  errno = 0;
  std::ifstream file(field.path, std::ios::binary);
  std::string text(kMaxFile + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    const absl::Status why = absl::ErrnoToStatus(errno, "cannot be read");
    return field.Error(why.code(), Message(why));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFile) return field.Invalid("is larger than 1 MiB");
  return text;
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Keeps OpenSSL from asking for a passphrase on the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

std::string DateOf(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || ASN1_TIME_print(bio.get(), time) != 1) return "an unreadable date";
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

// Reads the first certificate of the file and checks that it is valid now.
absl::StatusOr<Certificate> ReadCertificate(const FileField& field) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::string text, Read(field));
  Certificate certificate(PEM_read_bio_X509(BioOf(text).get(), nullptr, NoPassphrase, nullptr));
  if (certificate == nullptr) return field.Invalid("holds no certificate in PEM");
  if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0) {
    return field.Invalid(
        StrCat("is not valid before ", DateOf(X509_get0_notBefore(certificate.get()))));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return field.Invalid(StrCat("expired on ", DateOf(X509_get0_notAfter(certificate.get()))));
  }
  return certificate;
}

absl::Status CheckKey(const FileField& field, const FileField& certificate_field) {
  PTQWATCH_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(certificate_field));
  PTQWATCH_ASSIGN_OR_RETURN(const std::string text, Read(field));
  const Key key(PEM_read_bio_PrivateKey(BioOf(text).get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) return field.Invalid("holds no private key in PEM without a passphrase");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return field.Invalid(
        StrCat("is not the key of the certificate in '", certificate_field.path, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BearerToken> ReadToken(const FileField& field) {
  PTQWATCH_ASSIGN_OR_RETURN(std::string token, Read(field));
  if (!token.empty() && token.back() == '\n') token.pop_back();
  if (!token.empty() && token.back() == '\r') token.pop_back();
  if (token.size() < kMinToken) {
    return field.Invalid(
        StrCat("a token needs ", kMinToken, " characters, this has ", token.size()));
  }
  if (token.size() > kMaxToken) {
    return field.Invalid(
        StrCat("a token has at most ", kMaxToken, " characters, this has ", token.size()));
  }
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return field.Invalid("a token has visible ASCII characters only, on one line");
    }
  }
  return BearerToken(std::move(token));
}

// The credentials after the scheme, whose case does not matter (RFC 9110, section 11.1).
std::optional<std::string_view> After(std::string_view scheme, std::string_view authorization) {
  const absl::string_view text(authorization.data(), authorization.size());
  if (!absl::StartsWithIgnoreCase(text, {scheme.data(), scheme.size()})) return std::nullopt;
  return authorization.substr(scheme.size());
}

}  // namespace

bool BearerToken::Equals(std::string_view token) const {
  return token.size() == token_.size() &&
         CRYPTO_memcmp(token.data(), token_.data(), token_.size()) == 0;
}

bool BearerToken::Admits(std::string_view authorization) const {
  if (token_.empty()) return true;
  const std::optional<std::string_view> token = After("Bearer ", authorization);
  return token && Equals(*token);
}

bool BearerToken::AdmitsLogin(std::string_view authorization) const {
  if (Admits(authorization)) return true;
  const std::optional<std::string_view> encoded = After("Basic ", authorization);
  std::string login;
  if (!encoded || !absl::Base64Unescape({encoded->data(), encoded->size()}, &login)) return false;
  const size_t colon = login.find(':');
  return colon != std::string::npos && Equals(std::string_view(login).substr(colon + 1));
}

absl::StatusOr<BearerToken> CheckSecurity(const ServerSecurity& security, std::string_view options,
                                          bool remote) {
  const auto field = [&](std::string_view name, const std::string& path) {
    return FileField{StrCat(options, ".security.", name), path};
  };
  const FileField certificate = field("certificate_file", security.certificate_file);
  const FileField key = field("private_key_file", security.private_key_file);
  const FileField client_ca = field("client_ca_file", security.client_ca_file);
  const FileField token = field("token_file", security.token_file);
  const auto needs = [&](const FileField& set, const FileField& other) {
    return !set.path.empty() && other.path.empty() ? set.Invalid(StrCat("needs ", other.name))
                                                   : absl::OkStatus();
  };
  PTQWATCH_RETURN_IF_ERROR(needs(certificate, key));
  PTQWATCH_RETURN_IF_ERROR(needs(key, certificate));
  PTQWATCH_RETURN_IF_ERROR(needs(client_ca, certificate));
  if (remote) PTQWATCH_RETURN_IF_ERROR(needs(token, certificate));
  // OpenSSL's error queue belongs to this thread, which may be the trainer's, so leave it
  // unchanged.
  ERR_set_mark();
  const auto check = [&]() -> absl::StatusOr<BearerToken> {
    if (security.tls()) PTQWATCH_RETURN_IF_ERROR(CheckKey(key, certificate));
    if (!client_ca.path.empty()) PTQWATCH_RETURN_IF_ERROR(ReadCertificate(client_ca).status());
    if (token.path.empty()) return BearerToken();
    return ReadToken(token);
  };
  absl::StatusOr<BearerToken> checked = check();
  ERR_pop_to_mark();
  return checked;
}

}  // namespace ptqwatch::internal
