#include "ptqwatch/stored_size.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quantize/kernels/number_format.h"
#include "quantize/methods.h"

namespace ptqwatch {
namespace {

using CodeCounts = std::array<int64_t, 256>;

// Equal neighbours would wait for each other's store, so that they count in tables of their own.
constexpr size_t kTables = 4;
// A table's counts have 32 bits.
constexpr int64_t kMostAtATime = int64_t{1} << 30;

void CountCodes(const uint8_t* codes, int64_t size, CodeCounts& counts) {
  std::vector<std::array<uint32_t, 256>> tables(kTables);
  for (int64_t begin = 0; begin < size; begin += kMostAtATime) {
    const int64_t end = std::min(size, begin + kMostAtATime);
    for (auto& table : tables) table.fill(0);
    int64_t i = begin;
    for (; i + static_cast<int64_t>(kTables) <= end; i += kTables) {
      for (size_t t = 0; t < kTables; ++t) ++tables[t][codes[i + static_cast<int64_t>(t)]];
    }
    for (; i < end; ++i) ++tables[0][codes[i]];
    for (const auto& table : tables) {
      for (size_t code = 0; code < counts.size(); ++code) counts[code] += table[code];
    }
  }
}

// Sum over all codes of -log2 of their share.
double EntropyOf(const CodeCounts& counts, int64_t size) {
  double bits = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    bits += static_cast<double>(count) *
            std::log2(static_cast<double>(size) / static_cast<double>(count));
  }
  return bits;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t StoredScales(const QuantizerSpec& spec, int64_t rows, int64_t cols) {
  const internal::Method& method = internal::MethodOf(spec);
  if (!method.grid) {
    return method.group_size > 0 ? CeilDiv(rows * cols, method.group_size) : rows;
  }
  const int64_t block_rows = spec.group_rows < 0 ? rows : spec.group_rows;
  return CeilDiv(cols, internal::GroupSizeOf(spec, cols)) * CeilDiv(rows, block_rows);
}

}  // namespace

StoredSize StoredSizeOf(const QuantizedWeight& weight, const QuantizerSpec& spec, int64_t rows,
                        int64_t cols) {
  StoredSize size;
  if (weight.codes.empty()) {
    size.other_bytes = kUnquantizedBytes * rows * cols;
    return size;
  }
  CodeCounts counts{};
  CountCodes(weight.codes.data(), rows * cols, counts);
  for (const int64_t column : weight.outlier_columns) {
    for (int64_t r = 0; r < rows; ++r)
      --counts[weight.codes[static_cast<size_t>(r * cols + column)]];
  }
  const auto kept = static_cast<int64_t>(weight.outlier_columns.size());
  size.codes = rows * (cols - kept);
  size.code_bits = EntropyOf(counts, size.codes);
  size.other_bytes = kept * (kUnquantizedBytes * rows + int64_t{sizeof(int32_t)});

  const internal::NumberFormat& format = internal::NumbersOf(spec);
  const int64_t dtype_bytes = spec.scale_dtype == ScaleDtype::kFloat32 ? 4 : 2;
  const int64_t scales = StoredScales(spec, rows, cols);
  size.other_bytes += scales * (format.scale == internal::GroupScale::kSpec ? dtype_bytes : 1);
  if (format.scale == internal::GroupScale::kE4m3) size.other_bytes += int64_t{sizeof(float)};
  if (internal::MethodOf(spec).grid && !format.is_float() && !spec.symmetric) {
    size.other_bytes += CeilDiv(scales * spec.bits, 8);
  }
  size.other_bytes += static_cast<int64_t>(weight.channel_scale.size()) * dtype_bytes;
  return size;
}

}  // namespace ptqwatch
