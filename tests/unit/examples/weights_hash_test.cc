#include "weights_hash.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::examples {
namespace weights_hash_test {

std::string HashOf(const std::vector<std::string>& texts) {
  std::vector<std::span<const std::byte>> arrays;
  for (const std::string& text : texts) arrays.push_back(std::as_bytes(std::span(text)));
  return Sha256(arrays);
}

// The examples of FIPS 180-4.
TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(HashOf({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HashOf({"a", "bc"}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HashOf({"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"}),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HashOf({std::string(1'000'000, 'a')}),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace weights_hash_test
}  // namespace ptqwatch::examples
