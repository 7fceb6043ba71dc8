#include "security/check_security.h"

#include <string>

#include "absl/strings/escaping.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace check_security_test {

using ::testing::HasSubstr;

std::string FileWith(const std::string& text) {
  static const testing::TempDir folder;
  const std::string path = folder.File("token.txt");
  testing::WriteFile(path, text);
  return path;
}

absl::StatusOr<BearerToken> TokenOf(const std::string& text) {
  return CheckSecurity({.token_file = FileWith(text)}, "Options", false);
}

TEST(BearerToken, AdmitsItselfAlone) {
  const BearerToken token("0123456789abcdef");
  EXPECT_TRUE(token.Admits("Bearer 0123456789abcdef"));
  EXPECT_TRUE(token.Admits("bearer 0123456789abcdef"));
  EXPECT_FALSE(token.Admits(""));
  EXPECT_FALSE(token.Admits("0123456789abcdef"));
  EXPECT_FALSE(token.Admits("Bearer 0123456789abcdeF"));
  EXPECT_FALSE(token.Admits("Bearer 0123456789abcdef "));
  EXPECT_FALSE(token.Admits("Bearer 0123456789abcde"));
  EXPECT_FALSE(token.Admits("Basic: 0123456789abcdef"));
}

TEST(BearerToken, AdmitsALoginWithItAsThePassword) {
  const BearerToken token("0123456789abcdef");
  const auto login = [](const std::string& text) {
    return StrCat("Basic ", absl::Base64Escape(text));
  };
  EXPECT_TRUE(token.AdmitsLogin("Bearer 0123456789abcdef"));
  EXPECT_TRUE(token.AdmitsLogin(login("me:0123456789abcdef")));
  EXPECT_TRUE(token.AdmitsLogin(login(":0123456789abcdef")));
  EXPECT_FALSE(token.AdmitsLogin(login("0123456789abcdef")));
  EXPECT_FALSE(token.AdmitsLogin(login("0123456789abcdef:")));
  EXPECT_FALSE(token.AdmitsLogin(login("me:0123456789abcdeF")));
  EXPECT_FALSE(token.AdmitsLogin(login("me::0123456789abcdef")));
  EXPECT_FALSE(token.AdmitsLogin("Basic not base64"));
  EXPECT_FALSE(token.AdmitsLogin(""));
  EXPECT_FALSE(token.Admits(login("me:0123456789abcdef"))) << "over gRPC there is no login";
}

TEST(BearerToken, OfNoneAdmitsEverybody) {
  EXPECT_TRUE(BearerToken().AdmitsLogin(""));
  EXPECT_TRUE(BearerToken().Admits(""));
  EXPECT_TRUE(BearerToken().Admits("Bearer whatever"));
}

TEST(CheckSecurity, AsksForNothingByDefault) {
  const absl::StatusOr<BearerToken> token = CheckSecurity({}, "Options", true);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_TRUE(token->empty());
}

TEST(CheckSecurity, ReadsATokenWithoutItsNewline) {
  for (const char* end : {"", "\n", "\r\n"}) {
    const absl::StatusOr<BearerToken> token = TokenOf(StrCat("0123456789abcdef", end));
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_TRUE(token->Admits("Bearer 0123456789abcdef"));
  }
}

TEST(CheckSecurity, RefusesInvalidTokens) {
  for (const char* text : {"", "\n", "too-short", "0123456789 abcdef", "0123456789\nabcdef",
                           "0123456789abcdef\n\n", "0123456789abcd\xc3\xa9"}) {
    const absl::Status status = TokenOf(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("Options.security.token_file '")) << text;
  }
}

TEST(CheckSecurity, RefusesATokenThatNoHeaderHolds) {
  EXPECT_TRUE(TokenOf(std::string(512, 'a')).ok());
  EXPECT_THAT(std::string(Message(TokenOf(std::string(513, 'a')).status())),
              HasSubstr("a token has at most 512 characters, this has 513"));
}

TEST(CheckSecurity, SaysWhichFieldNeedsWhich) {
  struct Case {
    ServerSecurity security;
    bool remote;
    const char* message;
  };
  const Case cases[] = {
      {{.certificate_file = "c.pem"},
       false,
       "O.security.certificate_file 'c.pem': needs O.security.private_key_file"},
      {{.private_key_file = "k.pem"},
       false,
       "O.security.private_key_file 'k.pem': needs O.security.certificate_file"},
      {{.client_ca_file = "ca.pem"},
       false,
       "O.security.client_ca_file 'ca.pem': needs O.security.certificate_file"},
      {{.token_file = "t"}, true, "O.security.token_file 't': needs O.security.certificate_file"}};
  for (const Case& one : cases) {
    const absl::Status status = CheckSecurity(one.security, "O", one.remote).status();
    EXPECT_EQ(status, absl::InvalidArgumentError(one.message));
  }
}

TEST(CheckSecurity, NamesAFileThatCannotBeRead) {
  const absl::Status status = CheckSecurity({.token_file = "/nowhere/token"}, "O", false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("O.security.token_file '/nowhere/token'"));
}

TEST(CheckSecurity, RefusesFilesThatAreNotCertificates) {
  const std::string path = FileWith("not a certificate");
  const absl::Status status =
      CheckSecurity({.certificate_file = path, .private_key_file = path}, "O", false).status();
  EXPECT_EQ(status, absl::InvalidArgumentError(StrCat("O.security.certificate_file '", path,
                                                      "': holds no certificate in PEM")));
}

}  // namespace check_security_test
}  // namespace ptqwatch::internal
