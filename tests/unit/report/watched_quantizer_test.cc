#include "report/watched_quantizer.h"

#include <gtest/gtest.h>

#include <vector>

namespace ptqwatch::internal {
namespace watched_quantizer_test {

using enum QuantizationMethod;

struct Asked {
  QuantizationMethod method;
  int bits;
};

// The watched quantizer of a list; expects the same from options and from a report.
std::optional<size_t> Watched(const std::vector<Asked>& asked) {
  std::vector<QuantizerSpec> specs;
  std::vector<QuantizationReport> reports;
  for (const Asked& one : asked) {
    specs.push_back({.method = one.method, .bits = one.bits});
    QuantizationReport& report = reports.emplace_back();
    report.method = one.method;
    report.bits = one.bits;
  }
  EXPECT_EQ(WatchedQuantizer(specs), WatchedQuantizer(reports));
  return WatchedQuantizer(specs);
}

TEST(WatchedQuantizer, IsGptqWithTheFewestBitsFromThreeUp) {
  EXPECT_EQ(Watched({{kRtn, 3}, {kGptq, 4}, {kGptq, 3}, {kGptq, 2}}), 2u);
}

TEST(WatchedQuantizer, IsAnotherMethodIfGptqHasTooFewBits) {
  EXPECT_EQ(Watched({{kGptq, 2}, {kRtn, 8}, {kAwq, 4}}), 2u);
}

TEST(WatchedQuantizer, IsTheOneWithTheMostBitsIfAllHaveTooFew) {
  EXPECT_EQ(Watched({{kRtn, 2}, {kGptq, 2}}), 0u);
}

TEST(WatchedQuantizer, IsTheFirstOfEqualsAndAbsentWithoutQuantizers) {
  EXPECT_EQ(Watched({{kRtn, 4}, {kAwq, 4}}), 0u);
  EXPECT_EQ(Watched({}), std::nullopt);
}

}  // namespace watched_quantizer_test
}  // namespace ptqwatch::internal
