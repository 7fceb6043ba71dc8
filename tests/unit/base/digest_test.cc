#include "base/digest.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace digest_test {

TEST(Digest, IsXxh3With128Bits) {
  // The published value for no input.
  EXPECT_EQ(Digest().Hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, TellsWhereATextEnds) {
  Digest a;
  a.Add("ab");
  a.Add("c");
  Digest b;
  b.Add("a");
  b.Add("bc");
  EXPECT_NE(a.Hex(), b.Hex());
  Digest c;
  c.Add("ab");
  c.Add("c");
  EXPECT_EQ(a.Hex(), c.Hex());
}

TEST(Digest, AddsNumbersAsLittleEndianBytes) {
  Digest number;
  number.Add(int64_t{0x0102});
  Digest bytes;
  bytes.AddBytes("\x02\x01\0\0\0\0\0\0", 8);
  EXPECT_EQ(number.Hex(), bytes.Hex());
}

}  // namespace digest_test
}  // namespace ptqwatch::internal
