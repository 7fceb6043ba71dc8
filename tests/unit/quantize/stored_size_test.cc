#include "ptqwatch/stored_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace stored_size_test {

using testing::CorrelatedInputs;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;
using testing::SpecOf;

// By the definition, over the codes outside these columns.
double Entropy(const QuantizedWeight& weight, int64_t cols) {
  std::map<int, double> counts;
  double size = 0;
  for (size_t i = 0; i < weight.codes.size(); ++i) {
    const auto column = static_cast<int64_t>(i) % cols;
    const auto& left_out = weight.outlier_columns;
    if (std::find(left_out.begin(), left_out.end(), column) != left_out.end()) continue;
    ++counts[weight.codes[i]];
    ++size;
  }
  double bits = 0;
  for (const auto& [code, count] : counts) bits -= count / size * std::log2(count / size);
  return bits;
}

QuantizedWeight WithCodes(std::vector<uint8_t> codes) {
  QuantizedWeight weight;
  weight.codes = std::move(codes);
  return weight;
}

TEST(StoredSize, IsTheEntropyOfTheCodes) {
  const QuantizerSpec spec = SpecOf(QuantizationMethod::kNf4);
  std::vector<uint8_t> all(1024);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(StoredSizeOf(WithCodes(all), spec, 4, 256).EntropyBits(), 8);
  EXPECT_EQ(StoredSizeOf(WithCodes(std::vector<uint8_t>(35, 9)), spec, 5, 7).EntropyBits(), 0);
  // Three of one value and one of another, in no multiple of what is counted at a time.
  const StoredSize size = StoredSizeOf(WithCodes({3, 200, 3, 3}), spec, 2, 2);
  EXPECT_NEAR(size.code_bits, 3 * std::log2(4 / 3.0) + 2, 1e-12);
  EXPECT_EQ(size.codes, 4);
  EXPECT_EQ(size.Bytes(), 1 + 4);  // 3.2 bits and one absmax
}

TEST(StoredSize, CountsWhatEachMethodStores) {
  // 6 rows of 200 inputs: 7 groups of 32, 2 of 128; 19 blocks of NF4.
  const Matrix weight = RandomMatrix(6, 200, 1);
  const GramStatistics statistics = testing::Gram(CorrelatedInputs(300, 200, 2));
  const auto with = [](QuantizerSpec spec, auto change) {
    change(spec);
    return spec;
  };
  const QuantizerSpec rtn = SpecOf(QuantizationMethod::kRtn);
  const std::vector<std::pair<QuantizerSpec, int64_t>> cases = {
      {rtn, 6 * 7 * 4},
      {with(rtn, [](auto& s) { s.scale_dtype = ScaleDtype::kBFloat16; }), 6 * 7 * 2},
      {with(rtn, [](auto& s) { s.group_size = -1; }), 6 * 4},
      {with(rtn, [](auto& s) { s.group_rows = 4; }), 2 * 7 * 4},
      {with(rtn, [](auto& s) { s.group_rows = -1; }), 7 * 4},
      // 42 zeros of 3 bits.
      {with(rtn, [](auto& s) { s.symmetric = false, s.bits = 3; }), 6 * 7 * 4 + 16},
      {with(rtn, [](auto& s) { s.rotation = 32; }), 6 * 7 * 4},
      {SpecOf(QuantizationMethod::kGptq), 6 * 7 * 4},
      {SpecOf(QuantizationMethod::kAwq), 6 * 7 * 4 + 200 * 4},
      {SpecOf(QuantizationMethod::kNf4), 19 * 4},
      {SpecOf(QuantizationFormat::kFp8), 6 * 7 * 4},
      {SpecOf(QuantizationFormat::kFp8E5m2), 6 * 7 * 4},
      {SpecOf(QuantizationFormat::kMxfp4), 6 * 7},
      {SpecOf(QuantizationFormat::kMxfp8), 6 * 7},
      {SpecOf(QuantizationFormat::kNvfp4), 6 * 13 + 4},
  };
  for (const auto& [spec, other_bytes] : cases) {
    const QuantizedWeight result = RunOk(weight, &statistics, spec);
    const StoredSize size = StoredSizeOf(result, spec, 6, 200);
    EXPECT_EQ(size.codes, 1200) << Describe(spec);
    EXPECT_NEAR(size.EntropyBits(), Entropy(result, 200), 1e-12) << Describe(spec);
    EXPECT_GT(size.EntropyBits(), 1) << Describe(spec);
    EXPECT_LE(size.EntropyBits(), spec.bits) << Describe(spec);
    EXPECT_EQ(size.other_bytes, other_bytes) << Describe(spec);
    EXPECT_EQ(size.Bytes(), std::llround(std::ceil(size.code_bits / 8)) + other_bytes)
        << Describe(spec);
  }
}

TEST(StoredSize, KeepsOutlierColumnsInFullPrecision) {
  const Matrix weight = RandomMatrix(6, 200, 1);
  // Every 37th channel is 20 times larger than the others.
  const GramStatistics statistics = testing::Gram(CorrelatedInputs(300, 200, 2));
  const QuantizerSpec spec = SpecOf(QuantizationMethod::kLlmInt8);
  const QuantizedWeight result = RunOk(weight, &statistics, spec);
  const auto kept = static_cast<int64_t>(result.outlier_columns.size());
  ASSERT_GT(kept, 0);
  ASSERT_LT(kept, 100);
  const StoredSize size = StoredSizeOf(result, spec, 6, 200);
  EXPECT_EQ(size.codes, 6 * (200 - kept));
  EXPECT_NEAR(size.EntropyBits(), Entropy(result, 200), 1e-12);
  EXPECT_EQ(size.other_bytes, 6 * 4 + kept * (6 * 2 + 4));
}

TEST(StoredSize, HasNoChannelScalesIfRtnStandsIn) {
  const Matrix weight = RandomMatrix(6, 64, 1);
  const QuantizerSpec spec = SpecOf(QuantizationMethod::kAwq);
  const GramStatistics none = testing::Gram(CorrelatedInputs(0, 64, 2));
  const QuantizedWeight result = RunOk(weight, &none, spec);
  ASSERT_EQ(result.status, LayerStatus::kTooFewTokens);
  EXPECT_EQ(StoredSizeOf(result, spec, 6, 64).other_bytes, 6 * 2 * 4);
}

TEST(StoredSize, OfAWeightWithoutCodesIsSixteenBitsAnElement) {
  Matrix weight = RandomMatrix(6, 64, 1);
  weight.at(2, 3) = std::nanf("");
  const QuantizerSpec spec = SpecOf(QuantizationMethod::kRtn);
  const QuantizedWeight result = RunOk(weight, nullptr, spec);
  ASSERT_EQ(result.status, LayerStatus::kNonFinite);
  StoredSize size = StoredSizeOf(result, spec, 6, 64);
  EXPECT_EQ(size, (StoredSize{.other_bytes = 6 * 64 * 2}));
  EXPECT_EQ(size.EntropyBits(), 0);
  size += {.codes = 8, .code_bits = 12, .other_bytes = 1};
  EXPECT_EQ(size.EntropyBits(), 1.5);
  EXPECT_EQ(size.Bytes(), 2 + 6 * 64 * 2 + 1);
}

}  // namespace stored_size_test
}  // namespace ptqwatch
