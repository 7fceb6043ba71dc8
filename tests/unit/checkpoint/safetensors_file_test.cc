#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"
#include "unit/checkpoint/raw_safetensors.h"

namespace ptqwatch {
namespace safetensors_file_test {

using testing::BytesOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WithHeader;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class SafetensorsFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<SafetensorsFile> Open(const std::string& bytes) {
    testing::WriteFile(path_, bytes);
    return SafetensorsFile::Open(path_);
  }
  // The message of the refusal; it must name the file.
  std::string Refusal(const std::string& bytes) {
    const absl::Status status = Open(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(Message(status), HasSubstr(path_));
    return Message(status);
  }
  // A refusal that names the tensor.
  std::string RefusalOfW(const std::string& entry, const std::string& data = "") {
    const std::string message = Refusal(WithHeader("{\"w\":{" + entry + "}}", data));
    EXPECT_THAT(message, HasSubstr("'w'"));
    return message;
  }

  TempDir folder_;
  const std::string path_ = folder_.File("x.safetensors");
};

TEST_F(SafetensorsFileTest, GivesBackWhatItHolds) {
  const std::string data =
      BytesOf<double>({0.1, -1e300, 2}) + BytesOf<float>({1.5f, -2}) + BytesOf<int32_t>({7}) +
      BytesOf<uint16_t>({0x3c00, 0x0001, 0xfc00, 0x7e00}) + BytesOf<uint16_t>({0x3f80, 0xc040});
  absl::StatusOr<SafetensorsFile> file =
      Open(WithHeader(R"({"__metadata__":{"format":"pt","":"x"},)"
                      R"("d":{"dtype":"F64","shape":[3],"data_offsets":[0,24]},)"
                      R"("f":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]},)"
                      R"("i":{"dtype":"I32","shape":[],"data_offsets":[32,36]},)"
                      R"("h":{"dtype":"F16","shape":[2,2],"data_offsets":[36,44]},)"
                      R"("empty":{"dtype":"F16","shape":[2,0],"data_offsets":[36,36]},)"
                      R"("b":{"shape":[2],"data_offsets":[44,48],"dtype":"BF16"}}   )",
                      data));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path(), path_);
  EXPECT_EQ(file->tensors().size(), 6);
  EXPECT_EQ(file->metadata().size(), 2);
  EXPECT_EQ(file->metadata().find("format")->second, "pt");
  EXPECT_EQ(file->Find("nothing"), nullptr);
  EXPECT_EQ(file->Find("h")->Describe(), "F16[2, 2]");
  EXPECT_EQ(file->Find("i")->Describe(), "I32[]");
  EXPECT_EQ(file->Find("i")->elements(), 1);

  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(*file->ReadFloats("d"), ElementsAre(0.1f, -infinity, 2));
  EXPECT_THAT(*file->ReadFloats("f"), ElementsAre(1.5f, -2));
  EXPECT_THAT(*file->ReadFloats("b"), ElementsAre(1, -3));
  EXPECT_THAT(*file->ReadFloats("empty"), ElementsAre());
  const std::vector<float> halves = *file->ReadFloats("h");
  EXPECT_EQ(halves[0], 1);
  EXPECT_EQ(halves[1], 0x1p-24f);
  EXPECT_EQ(halves[2], -infinity);
  EXPECT_TRUE(std::isnan(halves[3]));
  EXPECT_THAT(*file->ReadFloats("h", 1, 1), ElementsAre(0x1p-24f));

  int32_t number = 0;
  ASSERT_TRUE(file->ReadBytes("i", 0, absl::MakeSpan(reinterpret_cast<char*>(&number), 4)).ok());
  EXPECT_EQ(number, 7);
}

TEST_F(SafetensorsFileTest, ReadsFilesWithoutTensors) {
  absl::StatusOr<SafetensorsFile> file = Open(WithHeader("{}"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->tensors().empty());
}

TEST_F(SafetensorsFileTest, NamesWhatIsAskedForWrongly) {
  absl::StatusOr<SafetensorsFile> file = Open(WithHeader(
      R"({"w":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", std::string(8, '\0')));
  ASSERT_TRUE(file.ok()) << file.status();
  std::string buffer(16, '\0');
  for (const absl::Status& status :
       {file->ReadFloats("w").status(), file->ReadFloats("w", 1, 2).status(),
        file->ReadBytes("w", 4, absl::MakeSpan(buffer)),
        file->ReadBytes("w", -1, absl::MakeSpan(buffer).first(1)),
        file->ReadBytes("w", 9, absl::MakeSpan(buffer).first(0))}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr(path_));
    EXPECT_THAT(Message(status), HasSubstr("'w'"));
  }
  EXPECT_EQ(file->ReadFloats("v").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsFileTest, NamesAFileThatIsNotThere) {
  const std::string path = folder_.File("none");
  const absl::Status missing = SafetensorsFile::Open(path).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(missing), HasSubstr(path));
  const absl::Status folder = SafetensorsFile::Open(folder_.path()).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(folder), HasSubstr(folder_.path()));
}

TEST_F(SafetensorsFileTest, RefusesHeadersThatAreNotThere) {
  EXPECT_THAT(Refusal(""), HasSubstr("only 0 bytes"));
  EXPECT_THAT(Refusal("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(Refusal(std::string(8, '\xff')), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Refusal(std::string("\x03\0\0\0\0\0\0\0{}", 10)), HasSubstr("of 3 bytes"));
  EXPECT_THAT(Refusal("version https://git-lfs.github.com/spec/v1\noid sha256:6f\nsize 12\n"),
              HasSubstr("git lfs pull"));
  for (const std::string header : {"", " {}", "[]", "{", "{}x", "{\"a\"}", "{'a':1}", "\xff"}) {
    Refusal(WithHeader(header));
  }
}

TEST_F(SafetensorsFileTest, RefusesAHeaderBeyondTheFormatsLimitWithoutReadingIt) {
  testing::WriteFile(path_, std::string("\x01\xe1\xf5\x05\0\0\0\0{", 9));
  ASSERT_EQ(truncate(path_.c_str(), 200'000'000), 0);  // a hole, not 200 MB
  const absl::Status status = SafetensorsFile::Open(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("100000001"));
}

TEST_F(SafetensorsFileTest, RefusesEntriesOfAnotherForm) {
  const std::string eight(8, '\0');
  Refusal(WithHeader("{\"w\":1}"));
  Refusal(WithHeader("{\"w\":null}"));
  Refusal(WithHeader("{\"w\":\"F32\"}"));
  Refusal(WithHeader("{\"w\":[]}"));
  RefusalOfW("");
  RefusalOfW(R"("dtype":"F32","shape":[2])", eight);
  RefusalOfW(R"("dtype":"F32","data_offsets":[0,8])", eight);
  RefusalOfW(R"("shape":[2],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)", eight);
  RefusalOfW(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":32,"shape":[2],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":2,"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":{"0":2},"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[true],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[2],"data_offsets":[0])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", eight);
  RefusalOfW(R"("dtype":"F32","shape":[2],"data_offsets":[0,"8"])", eight);
}

TEST_F(SafetensorsFileTest, RefusesSizesThatOverflow) {
  RefusalOfW(R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0])");
  RefusalOfW(R"("dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,0])");
  RefusalOfW(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0])");
  RefusalOfW(R"("dtype":"U8","shape":[99999999999999999999999],"data_offsets":[0,0])");
  RefusalOfW(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", "ab");
  std::string sides = "1";
  for (int i = 0; i < 64; ++i) sides += ",1";
  EXPECT_THAT(RefusalOfW(R"("dtype":"U8","shape":[)" + sides + R"(],"data_offsets":[0,1])", "a"),
              HasSubstr("too many dimensions"));
}

TEST_F(SafetensorsFileTest, RefusesOffsetsThatDoNotFit) {
  const std::string eight(8, '\0');
  EXPECT_THAT(RefusalOfW(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", eight),
              HasSubstr("needs 12"));
  RefusalOfW(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", eight);
  EXPECT_THAT(RefusalOfW(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])", eight),
              HasSubstr("ends at byte 12"));
  RefusalOfW(
      R"("dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775807])",
      eight);
  EXPECT_THAT(RefusalOfW(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", eight),
              HasSubstr("begins at byte 4"));
  EXPECT_THAT(
      Refusal(WithHeader(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight)),
      HasSubstr("end at byte 4"));
}

TEST_F(SafetensorsFileTest, RefusesTensorsThatOverlap) {
  for (const std::string second : {"0,8", "4,12", "8,12"}) {
    const std::string message = Refusal(WithHeader(
        R"({"v":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"w":{"dtype":)"
        R"("U8","shape":[)" +
            std::string(second == "8,12" ? "4" : "8") + R"(],"data_offsets":[)" + second + "]}}",
        std::string(second == "8,12" ? 16 : 12, '\0')));
    if (second != "8,12") {
      EXPECT_THAT(message, HasSubstr("'w'"));
    }
  }
}

TEST_F(SafetensorsFileTest, RefusesNamesThatOccurTwice) {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(Refusal(WithHeader("{\"w\":" + entry + ",\"w\":" + entry + "}")),
              HasSubstr("'w' occurs twice"));
  // The same name in another spelling.
  EXPECT_THAT(Refusal(WithHeader("{\"w\":" + entry + ",\"\\u0077\":" + entry + "}")),
              HasSubstr("'w' occurs twice"));
  EXPECT_THAT(Refusal(WithHeader(R"({"__metadata__":{"a":"1","a":"1"}})")),
              HasSubstr("'a' occurs twice"));
  EXPECT_THAT(Refusal(WithHeader(R"({"__metadata__":{},"__metadata__":{}})")),
              HasSubstr("__metadata__ occurs twice"));
}

TEST_F(SafetensorsFileTest, RefusesTextThatIsNotUtf8) {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  for (const std::string name : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\\ud800", "\xe2\x82"}) {
    EXPECT_THAT(Refusal(WithHeader("{\"" + name + "\":" + entry + "}")),
                HasSubstr("not valid JSON"));
    Refusal(WithHeader("{\"__metadata__\":{\"a\":\"" + name + "\"}}"));
  }
}

TEST_F(SafetensorsFileTest, RefusesMetadataThatIsNotText) {
  for (const std::string value : {"4", "null", "{}", "[]", "true"}) {
    EXPECT_THAT(Refusal(WithHeader("{\"__metadata__\":{\"bits\":" + value + "}}")),
                HasSubstr("__metadata__"));
  }
}

TEST_F(SafetensorsFileTest, DeepNestingIsRefusedAtItsFirstLevel) {
  Refusal(WithHeader("{\"w\":" + std::string(1'000'000, '[')));
  Refusal(WithHeader("{\"w\":{\"shape\":" + std::string(1'000'000, '[')));
}

TEST_F(SafetensorsFileTest, EscapesNamesInMessages) {
  const std::string message =
      Refusal(WithHeader("{\"\\u001b[2J" + std::string(500, 'x') + "\":1}"));
  EXPECT_THAT(message, HasSubstr("\\x1b[2J"));
  EXPECT_THAT(message, HasSubstr("..."));
  EXPECT_LT(message.size(), 500 + path_.size());
}

TEST_F(SafetensorsFileTest, NamesATensorThatWasCutOffLater) {
  absl::StatusOr<SafetensorsFile> file = Open(WithHeader(
      R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, '\0')));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(truncate(path_.c_str(), 66), 0);
  const absl::Status status = file->ReadFloats("w").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("'w'"));
  EXPECT_THAT(Message(status), HasSubstr(path_));
}

TEST_F(SafetensorsFileTest, MovesWithItsDescriptor) {
  absl::StatusOr<SafetensorsFile> file = Open(
      WithHeader(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", BytesOf<float>({3})));
  ASSERT_TRUE(file.ok()) << file.status();
  SafetensorsFile moved = *std::move(file);
  testing::WriteFile(folder_.File("other"), WithHeader("{}"));
  absl::StatusOr<SafetensorsFile> other = SafetensorsFile::Open(folder_.File("other"));
  ASSERT_TRUE(other.ok()) << other.status();
  *other = std::move(moved);
  EXPECT_THAT(*other->ReadFloats("w"), ElementsAre(3));
}

}  // namespace safetensors_file_test
}  // namespace ptqwatch
