#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace ptqwatch::internal {
namespace utf8_test {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD

TEST(IsUtf8, AcceptsWellFormedTextAlone) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("weight"));
  EXPECT_TRUE(IsUtf8("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsUtf8("\xff"));
  EXPECT_FALSE(IsUtf8("\xe2\x82"));          // cut off
  EXPECT_FALSE(IsUtf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));      // a surrogate
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));  // above U+10FFFF
}

TEST(ValidUtf8, KeepsWellFormedText) {
  for (const std::string text : {"", "weight", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"}) {
    EXPECT_EQ(ValidUtf8(text), text);
  }
}

TEST(ValidUtf8, ReplacesWhatIsNot) {
  const std::string r = kReplacement;
  EXPECT_EQ(ValidUtf8("a\xff"
                      "b"),
            "a" + r + "b");
  for (const std::string text : {"x\xe2\x82", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                 "\xf0", "\x80\x80", "a\xe2\x82 b"}) {
    const std::string valid = ValidUtf8(text);
    EXPECT_TRUE(IsUtf8(valid)) << valid;
    EXPECT_NE(valid.find(r), std::string::npos) << valid;
  }
}

TEST(ValidUtf8, ReplacesAsManyBytesAsCouldBeginACharacter) {
  const std::string r = kReplacement;
  EXPECT_EQ(ValidUtf8("\xe2\x82z"), r + "z");
  EXPECT_EQ(ValidUtf8("\xf0\x9f\x98"), r);
  EXPECT_EQ(ValidUtf8("\xe0\x80\xaf"), r + r + r);  // overlong
  EXPECT_EQ(ValidUtf8("\xc3\xc3\xa9"), r + "\xc3\xa9");
}

TEST(ValidUtf8Prefix, CountsTheBytesBeforeTheFirstMistake) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
  EXPECT_EQ(ValidUtf8Prefix("\xc3\xa9"), 2u);
  EXPECT_EQ(ValidUtf8Prefix("ab\xff"), 2u);
}

TEST(Quoted, ShowsPrintableTextAndEscapesTheRest) {
  EXPECT_EQ(Quoted("blocks.0"), "'blocks.0'");
  EXPECT_EQ(Quoted("\xc3\xa9"), "'\xc3\xa9'");
  EXPECT_EQ(Quoted("a\nb"), "'a\\nb'");
  EXPECT_EQ(Quoted("a\xff"), "'a\\xff'");
}

TEST(Quoted, CutsLongNames) {
  EXPECT_EQ(Quoted(std::string(200, 'x')), "'" + std::string(200, 'x') + "'");
  EXPECT_EQ(Quoted(std::string(201, 'x')), "'" + std::string(200, 'x') + "...'");
}

}  // namespace utf8_test
}  // namespace ptqwatch::internal
