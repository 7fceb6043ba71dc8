#ifndef PTQWATCH_TESTS_SUPPORT_CERTIFICATES_H_
#define PTQWATCH_TESTS_SUPPORT_CERTIFICATES_H_

#include <cstdio>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509v3.h"

namespace ptqwatch::testing {

/// The files of a self-signed certificate for 127.0.0.1, which serves as its own authority.
struct CertificateFiles {
  std::string certificate;
  std::string key;
};

/// Writes FOLDER/NAME.pem and FOLDER/NAME.key. `name` is also the subject. Valid for an hour.
inline CertificateFiles WriteCertificate(const std::string& folder, const std::string& name) {
  const CertificateFiles files{folder + "/" + name + ".pem", folder + "/" + name + ".key"};
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  for (const auto& [kind, value] : {std::pair(NID_subject_alt_name, "IP:127.0.0.1"),
                                    std::pair(NID_basic_constraints, "critical,CA:TRUE")}) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(certificate.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  std::FILE* file = std::fopen(files.certificate.c_str(), "wb");
  EXPECT_EQ(PEM_write_X509(file, certificate.get()), 1);
  std::fclose(file);
  file = std::fopen(files.key.c_str(), "wb");
  EXPECT_EQ(PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  std::fclose(file);
  return files;
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_CERTIFICATES_H_
