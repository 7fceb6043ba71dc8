#ifndef PTQWATCH_TESTS_UNIT_QUANTIZE_RUN_OK_H_
#define PTQWATCH_TESTS_UNIT_QUANTIZE_RUN_OK_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"

namespace ptqwatch::testing {

inline absl::StatusOr<QuantizedWeight> TryQuantize(const Matrix& weight,
                                                   const GramStatistics* statistics,
                                                   const QuantizerSpec& spec) {
  ExecutionContext context;
  return Quantize(weight.view(), statistics, spec, context);
}

inline QuantizedWeight RunOk(const Matrix& weight, const GramStatistics* statistics,
                             const QuantizerSpec& spec) {
  absl::StatusOr<QuantizedWeight> result = TryQuantize(weight, statistics, spec);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : QuantizedWeight{};
}

inline QuantizerSpec SpecOf(QuantizationMethod method) {
  QuantizerSpec spec;
  spec.method = method;
  spec.bits = method == QuantizationMethod::kLlmInt8 ? 8 : 4;
  spec.group_size = 32;
  return spec;
}

/// GPTQ, however few tokens there are.
inline QuantizerSpec GptqSpec(int bits, int group_size, bool symmetric, QuantizationOrder order) {
  QuantizerSpec spec;
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  spec.order = order;
  spec.min_tokens_ratio = 0;
  return spec;
}

/// The Hessian of independent inputs.
inline std::vector<double> Identity(int64_t d) {
  std::vector<double> h(static_cast<size_t>(d * d), 0.0);
  for (int64_t i = 0; i < d; ++i) h[static_cast<size_t>(i * d + i)] = 1;
  return h;
}

inline void ExpectNear(std::optional<double> got, double expected, double tolerance) {
  ASSERT_TRUE(got.has_value());
  EXPECT_NEAR(*got, expected, tolerance * std::abs(expected));
}

inline constexpr QuantizationMethod kAllMethods[] = {
    QuantizationMethod::kRtn, QuantizationMethod::kGptq, QuantizationMethod::kAwq,
    QuantizationMethod::kLlmInt8, QuantizationMethod::kNf4};

inline constexpr QuantizationFormat kFloatFormats[] = {
    QuantizationFormat::kFp8, QuantizationFormat::kFp8E5m2, QuantizationFormat::kMxfp4,
    QuantizationFormat::kMxfp8, QuantizationFormat::kNvfp4};

inline QuantizerSpec SpecOf(QuantizationFormat format,
                            QuantizationMethod method = QuantizationMethod::kRtn) {
  QuantizerSpec spec = SpecOf(method);
  spec.format = format;
  spec.bits = FixedBits(format).value_or(4);
  return spec;
}

/// A clock that cancels at the n-th look: every checkpoint of a run must end it.
class CancelAt final : public Clock {
 public:
  CancelAt(CancelToken token, int looks) : token_(std::move(token)), left_(looks) {}
  std::chrono::nanoseconds Monotonic() const override {
    if (left_-- == 0) token_.Cancel();
    return std::chrono::nanoseconds(0);
  }
  double UnixSeconds() const override { return 0; }
  void SleepFor(std::chrono::nanoseconds, const std::atomic<bool>&) override {}
  bool fired() const { return left_ < 0; }

 private:
  mutable CancelToken token_;
  mutable int left_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_QUANTIZE_RUN_OK_H_
