#include "text_table.h"

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace {

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

}  // namespace
}  // namespace ptqwatch::internal
