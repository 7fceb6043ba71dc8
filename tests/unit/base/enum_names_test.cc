#include "base/enum_names.h"

#include <gtest/gtest.h>

#include <string_view>

namespace ptqwatch::internal {
namespace enum_names_test {

enum class Color { kRed, kGreen, kBlue };
constexpr std::string_view kColors[] = {"red", "green", "blue"};
constexpr std::string_view kOne[] = {"green"};

TEST(EnumNames, GivesEachValueItsName) {
  EXPECT_EQ(EnumName(kColors, Color::kRed), "red");
  EXPECT_EQ(EnumName(kColors, Color::kBlue), "blue");
  EXPECT_EQ(EnumName(kColors, static_cast<Color>(3)), "unknown");
  EXPECT_EQ(EnumName(kColors, static_cast<Color>(-1)), "unknown");
}

TEST(EnumNames, FindsTheValueOfAName) {
  for (const Color color : {Color::kRed, Color::kGreen, Color::kBlue}) {
    EXPECT_EQ(EnumValue<Color>(kColors, EnumName(kColors, color)), color);
  }
  EXPECT_EQ(EnumValue<Color>(kColors, "Red"), std::nullopt);
  EXPECT_EQ(EnumValue<Color>(kColors, ""), std::nullopt);
}

TEST(EnumNames, ListsThemWhenANameIsUnknown) {
  EXPECT_EQ(ListOf(kColors), "red, green and blue");
  EXPECT_EQ(ListOf(kOne), "green");
  EXPECT_EQ(*ParseEnum<Color>("color", kColors, "green"), Color::kGreen);
  EXPECT_EQ(ParseEnum<Color>("color", kColors, "Red").status(),
            absl::InvalidArgumentError("unknown color 'Red'; known are red, green and blue"));
}

}  // namespace enum_names_test
}  // namespace ptqwatch::internal
