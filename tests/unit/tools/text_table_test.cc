#include "text_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace text_table_test {

TEST(Wrapped, BreaksAtSpacesIfThereAreAny) {
  EXPECT_THAT(Wrapped("one two  three", 7), ::testing::ElementsAre("one two", "three"));
  EXPECT_THAT(Wrapped("one two", 5), ::testing::ElementsAre("one", "two"));
  EXPECT_THAT(Wrapped("abcdefgh", 3), ::testing::ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(Wrapped("äöü äöü", 3), ::testing::ElementsAre("äöü", "äöü"));
  EXPECT_THAT(Wrapped("", 3), ::testing::IsEmpty());
  EXPECT_THAT(Wrapped("text", 0), ::testing::IsEmpty());
}

TEST(TextTable, MakesColumnsAsWideAsTheirWidestCell) {
  EXPECT_EQ(TextTable({{"name", "error"}, {"gptq3", "1.5\u00b10.1"}}),
            "name     error\n"
            "gptq3  1.5\u00b10.1\n");
  EXPECT_EQ(TextTable({}), "");
}

TEST(TextRow, CutsTextAndNotColours) {
  const std::vector<TextCell> cells = {
      {.text = "12", .width = 4},
      {.text = "degraded", .width = 10, .left = true, .color = "\x1b[31m"}};
  EXPECT_EQ(TextRow(cells, 2, kUnlimitedColumns), "  12\x1b[31m  degraded\x1b[0m");
  EXPECT_EQ(TextRow(cells, 1, 8), "  12\x1b[31m deg\x1b[0m");
}

}  // namespace text_table_test
}  // namespace ptqwatch::internal
