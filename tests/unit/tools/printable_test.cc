#include "printable.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace printable_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

TEST(Readable, StandsInForWhatTheTerminalCannotShow) {
  EXPECT_EQ(Readable("0.09 → 0.07±0.01 ü", true), "0.09 → 0.07±0.01 ü");
  EXPECT_EQ(Readable("0.09 → 0.07±0.01 ü", false), "0.09 -> 0.07+-0.01 ?");
  EXPECT_EQ(Readable("a\x1b[2J\xff", false), "a?[2J?");
}

TEST(Printable, LeavesNothingThatMovesTheCursor) {
  EXPECT_EQ(Printable("gptq \u00b1 \u03bb"), "gptq \u00b1 \u03bb");
  EXPECT_EQ(Printable("a\x1b[31mb\r\n\x7f"), "a?[31mb???");
  EXPECT_EQ(Printable("\u009b31m"), "?31m");  // the C1 form of ESC [
  EXPECT_EQ(Printable("a\xff"), "a\ufffd");
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "?");
  EXPECT_EQ(Printable(""), "");
}

TEST(DisplayWidth, CountsCharactersNotBytes) {
  EXPECT_EQ(DisplayWidth("4.53\u00b10.21%"), 10u);
  EXPECT_EQ(CutToWidth("1\u00b12\u00b13", 4), "1\u00b12\u00b1");
  EXPECT_EQ(CutToWidth("\u00b1", 1), "\u00b1");
  EXPECT_EQ(CutToWidth("abc", 0), "");
  EXPECT_EQ(CutToWidth("abc", 9), "abc");
  EXPECT_EQ(PadLeft("\u00b1", 3), "  \u00b1");
  EXPECT_EQ(PadRight("\u00b1", 3), "\u00b1  ");
  EXPECT_EQ(PadLeft("long", 2), "long");
}

TEST(NumberText, KeepsSignificantDigits) {
  EXPECT_EQ(NumberText(9.25, 3), "9.25");
  EXPECT_EQ(NumberText(10, 3), "10.0");
  EXPECT_EQ(NumberText(-123.4, 3), "-123");
  EXPECT_EQ(NumberText(0.001234, 3), "0.00123");
  EXPECT_EQ(NumberText(99999, 3), "99999");
  EXPECT_EQ(NumberText(0, 3), "0");
  EXPECT_EQ(NumberText(-0.0, 3), "0");
}

TEST(NumberText, TurnsToPowersForHugeAndTinyNumbers) {
  EXPECT_EQ(NumberText(1.234e9, 3), "1.23e9");
  EXPECT_EQ(NumberText(-1.234e-9, 3), "-1.23e-9");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::max(), 3), "1.80e308");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::denorm_min(), 3), "4.94e-324");
}

TEST(NumberText, IsADashWithoutANumber) {
  EXPECT_EQ(NumberText(kNan, 3), "-");
  EXPECT_EQ(NumberText(kInfinity, 3), "-");
  EXPECT_EQ(ScientificText(-kInfinity, 2), "-");
  EXPECT_EQ(EstimateText(kNan, 1.0, true), "-");
  EXPECT_EQ(AgeText(kNan), "-");
}

TEST(ScientificText, HasAShortExponent) {
  EXPECT_EQ(ScientificText(1e-3 / 3, 2), "3.33e-4");
  EXPECT_EQ(ScientificText(1, 2), "1.00e0");
  EXPECT_EQ(ScientificText(6.02e23, 2), "6.02e23");
  EXPECT_EQ(ScientificText(1e-10, 2), "1.00e-10");
  EXPECT_EQ(ScientificText(0, 2), "0");
}

TEST(EstimateText, ShowsTwoDigitsOfTheError) {
  EXPECT_EQ(EstimateText(4.532, 0.2145, true), "4.53\u00b10.21");
  EXPECT_EQ(EstimateText(4.532, 0.2145, false), "4.53+-0.21");
  EXPECT_EQ(EstimateText(368.5, 12.4, true), "368\u00b112");
  EXPECT_EQ(EstimateText(12345, 678, true), "12345\u00b1678");
  EXPECT_EQ(EstimateText(0.45678, 0.0123, true), "0.457\u00b10.012");
  EXPECT_EQ(EstimateText(-0.02, 0.5, true), "-0.02\u00b10.50");
  EXPECT_EQ(EstimateText(1.1432, 0.0571, true, 2), "1.14\u00b10.06");
  EXPECT_EQ(EstimateText(1.1432, 0.0041, true, 2), "1.14\u00b14.1e-3");
}

TEST(EstimateText, StaysShortWhateverTheSizes) {
  EXPECT_EQ(EstimateText(5, 1e-7, true), "5.0000\u00b11.0e-7");
  EXPECT_EQ(EstimateText(1e12, 3e10, true), "1.00e12\u00b13.0e10");
  EXPECT_EQ(EstimateText(2e-9, 1e-10, true), "2.00e-9\u00b11.0e-10");
  EXPECT_EQ(EstimateText(1, 1e300, true), "1.00e0\u00b11.0e300");
}

TEST(EstimateText, LeavesOutANonFiniteError) {
  EXPECT_EQ(EstimateText(4.532, std::nullopt, true), "4.53");
  EXPECT_EQ(EstimateText(4.532, kNan, true), "4.53");
  EXPECT_EQ(EstimateText(4.532, kInfinity, true), "4.53");
  EXPECT_EQ(EstimateText(4.532, -1.0, true), "4.53");
  EXPECT_EQ(EstimateText(4.532, 0.0, true), "4.53\u00b10");
}

TEST(AgeText, PicksAUnit) {
  EXPECT_EQ(AgeText(-5), "0 s");
  EXPECT_EQ(AgeText(12.4), "12 s");
  EXPECT_EQ(AgeText(150), "2.5 min");
  EXPECT_EQ(AgeText(9000), "2.5 h");
  EXPECT_EQ(AgeText(200000), "2.3 days");
}

}  // namespace printable_test
}  // namespace ptqwatch::internal
