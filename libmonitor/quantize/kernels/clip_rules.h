#ifndef PTQWATCH_QUANTIZE_KERNELS_CLIP_RULES_H_
#define PTQWATCH_QUANTIZE_KERNELS_CLIP_RULES_H_

#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// A rule for the range that a grid covers. clip_rules.cc lists the rules in the order of
/// ClipSearch.
struct ClipRule {
  const char* name = nullptr;
  /// Returns the range +-limit of `count` >= 1 weights; the grid covers max|w| instead if that is
  /// not positive. Null: the rule takes no clip_value, and is applied elsewhere.
  float (*limit)(const float* weights, int64_t count, double clip_value) = nullptr;
  /// The largest clip_value. The others are above 0.
  double largest_value = std::numeric_limits<double>::max();
};

absl::Span<const ClipRule> ClipRules();
/// Returns the rule; for an invalid value, which Validate refuses, that is kNone.
const ClipRule& ClipRuleOf(const QuantizerSpec& spec);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_CLIP_RULES_H_
