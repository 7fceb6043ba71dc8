#include "cuda/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ptqwatch::internal {
namespace arena_test {

using ::testing::HasSubstr;

TEST(Arena, GivesAlignedPiecesThatDoNotOverlap) {
  alignas(Arena::kAlignment) static char memory[4096];
  Arena arena(memory, sizeof(memory));
  char* a = *arena.TakeArray<char>(1, "a");
  double* b = *arena.TakeArray<double>(3, "b");
  char* c = *arena.TakeArray<char>(0, "c");
  EXPECT_EQ(a, memory);
  EXPECT_EQ(reinterpret_cast<char*>(b), memory + 256);
  EXPECT_EQ(c, memory + 512);
  EXPECT_EQ(arena.used(), 512);
}

TEST(Arena, NamesWhatDoesNotFit) {
  Arena arena(nullptr, 1000);
  EXPECT_TRUE(arena.Take(256, "first").ok());
  for (const int64_t bytes : {int64_t{769}, int64_t{745}, INT64_MAX}) {
    const absl::Status status = arena.Take(bytes, "the second").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << bytes;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the second"));
  }
  EXPECT_EQ(arena.Take(-1, "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena.used(), 256);
}

TEST(Arena, ScopesReturnWhatWasTakenInThem) {
  Arena arena(nullptr, 10000);
  ArenaScope outer(arena);
  ASSERT_TRUE(arena.Take(256, "kept").ok());
  {
    ArenaScope inner(arena);
    ASSERT_TRUE(arena.Take(5000, "x").ok());
  }
  EXPECT_EQ(arena.used(), 256);
  EXPECT_EQ(arena.remaining(), 10000 - 256);
  EXPECT_EQ(arena.peak(), 256 + Arena::Padded(5000));
}

}  // namespace arena_test
}  // namespace ptqwatch::internal
