#include "csv_row.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace csv_row_test {

TEST(CsvRow, QuotesWhatMustBeQuoted) {
  CsvRow row;
  row.Add("plain").Add("a,b").Add("say \"so\"").Add("two\nlines").Add("");
  EXPECT_EQ(row.text(), "plain,\"a,b\",\"say \"\"so\"\"\",\"two\nlines\",");
}

TEST(CsvRow, KeepsAllDigitsAndLeavesOutNonFiniteNumbers) {
  CsvRow row;
  row.Add(0.1).Add(1e-300).Add(int64_t{-3}).Add(std::nan("")).Add(std::optional<double>());
  EXPECT_EQ(row.text(), "0.1,1e-300,-3,,");
}

}  // namespace csv_row_test
}  // namespace ptqwatch::internal
