#include "base/enum_names.h"

#include <gtest/gtest.h>

#include <string_view>

namespace ptqwatch::internal {
namespace {

enum class Color { kRed, kGreen, kBlue };
constexpr Color kColors[] = {Color::kRed, Color::kGreen, Color::kBlue};
constexpr Color kOne[] = {Color::kGreen};

std::string_view ToString(Color color) {
  return color == Color::kRed ? "red" : color == Color::kGreen ? "green" : "blue";
}

TEST(NamesOf, ListsThem) {
  EXPECT_EQ(NamesOf(kColors), "red, green and blue");
  EXPECT_EQ(NamesOf(kOne), "green");
}

TEST(ParseEnum, FindsTheValueOrListsTheKnownNames) {
  for (const Color color : kColors) EXPECT_EQ(*ParseEnum("color", kColors, ToString(color)), color);
  EXPECT_EQ(ParseEnum("color", kColors, "Red").status(),
            absl::InvalidArgumentError("unknown color 'Red'; known are red, green and blue"));
}

}  // namespace
}  // namespace ptqwatch::internal
