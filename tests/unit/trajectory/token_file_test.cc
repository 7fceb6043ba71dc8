#include "trajectory/token_file.h"

#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace token_file_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> Counted(size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

std::string Numpy(const std::string& descr, const std::string& shape, const std::string& data,
                  const std::string& order = "False", char version = 1) {
  std::string header =
      "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.resize(118 - (version == 1 ? 0 : 2), ' ');
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  bytes += static_cast<char>(header.size());
  bytes += std::string(version == 1 ? 1 : 3, '\0');
  return bytes + header + data;
}

class TokenFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    WriteFile(dir_.File(name), content);
    return dir_.File(name);
  }
  // Sequences of 3 predictions.
  static std::vector<int64_t> TokensOf(const std::string& path, int raw_bytes = 2) {
    const auto read = ReadTokenFile(path, {.length = 3, .raw_bytes = raw_bytes});
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? read->tokens : std::vector<int64_t>();
  }
  static std::string Mistake(const std::string& path, int64_t sequences = 0, int raw_bytes = 2) {
    const auto read =
        ReadTokenFile(path, {.length = 3, .sequences = sequences, .raw_bytes = raw_bytes});
    EXPECT_FALSE(read.ok());
    return std::string(read.status().message());
  }
  const TempDir dir_;
};

TEST_F(TokenFile, SequencesShareTheTokenBetweenThem) {
  const auto expected = ElementsAre(0, 1, 2, 3, 3, 4, 5, 6);
  EXPECT_THAT(TokensOf(Write("a.bin", Bytes(Counted<uint16_t>(9)))), expected);
  EXPECT_THAT(TokensOf(Write("b.bin", Bytes(Counted<uint32_t>(9))), 4), expected);
  EXPECT_THAT(TokensOf(Write("c.npy", Numpy("'<i8'", "(8,)", Bytes(Counted<int64_t>(8))))),
              expected);
  EXPECT_THAT(TokensOf(Write("d.npy", Numpy("'<u2'", "(2, 4)", Bytes(Counted<uint16_t>(8))))),
              expected)
      << "rows follow each other";
  EXPECT_THAT(
      TokensOf(Write("e.npy", Numpy("'|u1'", "(9,)", Bytes(Counted<uint8_t>(9)), "False", 2))),
      expected);
}

TEST_F(TokenFile, LargeTokensKeepTheirValues) {
  EXPECT_THAT(TokensOf(Write("a.bin", Bytes<uint16_t>({65535, 1, 40000, 3}))),
              ElementsAre(65535, 1, 40000, 3));
  EXPECT_THAT(TokensOf(Write("b.bin", Bytes<uint32_t>({4294967295u, 1, 70000, 3})), 4),
              ElementsAre(4294967295, 1, 70000, 3));
}

TEST_F(TokenFile, HeadersOfLlmcAreSkipped) {
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 7;
  const std::string tokens = Bytes(Counted<uint16_t>(7));
  EXPECT_THAT(TokensOf(Write("a.bin", Bytes(header) + tokens)),
              ElementsAre(0, 1, 2, 3, 3, 4, 5, 6));
  header[0] = 20240801;
  EXPECT_THAT(TokensOf(Write("b.bin", Bytes(header) + Bytes(Counted<uint32_t>(7)))),
              ElementsAre(0, 1, 2, 3, 3, 4, 5, 6));
  header[2] = 8;  // another number of tokens: no header
  EXPECT_EQ(TokensOf(Write("c.bin", Bytes(header) + tokens)).size(), (512u + 7 - 1) / 3 * 4);
}

TEST_F(TokenFile, ATensorOfIntegersIsRead) {
  const std::string path = dir_.File("a.safetensors");
  const auto floats = MakeTensorSource("f", TensorDtype::kF32, {1}, std::string(4, '\0'));
  const auto tokens =
      MakeTensorSource("ids", TensorDtype::kI32, {2, 4}, Bytes(Counted<int32_t>(8)));
  ASSERT_TRUE(WriteSafetensors(path, {floats, tokens}).ok());
  EXPECT_THAT(TokensOf(path), ElementsAre(0, 1, 2, 3, 3, 4, 5, 6));
  const auto more = MakeTensorSource("more", TensorDtype::kU16, {1}, std::string(2, '\0'));
  ASSERT_TRUE(WriteSafetensors(path, {tokens, more}).ok());
  EXPECT_THAT(Mistake(path), HasSubstr("several tensors of integers: ids, more"));
  ASSERT_TRUE(WriteSafetensors(path, {floats}).ok());
  EXPECT_THAT(Mistake(path), HasSubstr("no tensor of integers"));
}

TEST_F(TokenFile, FewerSequencesAreEvenlySpaced) {
  const std::string path = Write("a.bin", Bytes(Counted<uint16_t>(31)));  // 10 sequences
  const auto read = ReadTokenFile(path, {.length = 3, .sequences = 4});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->position, ElementsAre(0, 6, 15, 21));
  EXPECT_EQ(read->tokens[4], 6);
  EXPECT_EQ(ReadTokenFile(path, {.length = 3})->sequences(), 10);
  EXPECT_EQ(ReadTokenFile(path, {.length = 3, .sequences = 10})->sequences(), 10);
  EXPECT_THAT(Mistake(path, 11), AllOf(HasSubstr("has 10 sequences"), HasSubstr("11")));
}

TEST_F(TokenFile, MistakesNameThePath) {
  EXPECT_THAT(Mistake(Write("a.bin", "")), AllOf(HasSubstr("a.bin"), HasSubstr("has 0 tokens")));
  EXPECT_THAT(Mistake(Write("b.bin", Bytes(Counted<uint16_t>(3)))),
              AllOf(HasSubstr("has 3 tokens"), HasSubstr("needs 4")));
  EXPECT_THAT(
      std::string(ReadTokenFile(dir_.File("b.bin"), {.length = INT64_MAX}).status().message()),
      HasSubstr("needs 9223372036854775808"));
  EXPECT_THAT(Mistake(Write("c.bin", "abcdefghi")), HasSubstr("no whole number of tokens"));
  EXPECT_THAT(Mistake(Write("d.bin", "abcdefghij"), 0, 4), HasSubstr("--token-bytes"));
  EXPECT_THAT(Mistake(dir_.File("gone")), HasSubstr("gone"));
  EXPECT_THAT(Mistake(dir_.path()), HasSubstr("not a regular file"));
  const std::string fifo = dir_.File("fifo");  // without a writer
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(Mistake(fifo), HasSubstr("not a regular file"));
  EXPECT_THAT(Mistake(Write("e.npy", "abc")), HasSubstr("is not a NumPy file"));
  EXPECT_THAT(Mistake(Write("f.npy", "\x93NUMPY")), HasSubstr("damaged"));
  EXPECT_THAT(Mistake(Write("g.npy", Numpy("'<f4'", "(9,)", std::string(36, '\0')))),
              HasSubstr("dtype '<f4'"));
  EXPECT_THAT(Mistake(Write("h.npy", Numpy("'>i4'", "(9,)", std::string(36, '\0')))),
              HasSubstr("'>i4'"));
  EXPECT_THAT(Mistake(Write("i.npy", Numpy("'<i4'", "(3, 3)", std::string(36, '\0'), "True"))),
              HasSubstr("Fortran"));
  EXPECT_THAT(Mistake(Write("j.npy", Numpy("'<i4'", "(1, 3, 3)", std::string(36, '\0')))),
              HasSubstr("shape (1, 3, 3)"));
  EXPECT_THAT(Mistake(Write("k.npy", Numpy("'<i4'", "(99,)", std::string(36, '\0')))),
              HasSubstr("shorter than its header says"));
  EXPECT_THAT(Mistake(Write("l.npy", Numpy("'<i4'", "(5,)", Bytes<int32_t>({1, 2, -7, 4, 5})))),
              AllOf(HasSubstr("token 2 is -7")));
}

TEST_F(TokenFile, TokensBeyondTheVocabularyAreNamed) {
  const std::string path = Write("a.bin", Bytes<uint16_t>({0, 1, 2, 3, 4, 5, 99, 7, 8, 9}));
  const auto read = ReadTokenFile(path, {.length = 3});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(CheckVocabulary(*read, 100, path).ok());
  EXPECT_THAT(std::string(CheckVocabulary(*read, 99, path).message()),
              AllOf(HasSubstr("token 6 is 99"), HasSubstr("vocabulary has 99")));
}

}  // namespace token_file_test
}  // namespace ptqwatch::internal
