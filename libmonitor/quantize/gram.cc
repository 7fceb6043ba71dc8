#include "quantize/gram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "quantize/aligned_buffer.h"
// After aligned_buffer.h, which sets what Highway compiles for.
#include "hwy/cache_control.h"
#include "report/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/gram.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "quantize/micro_kernel-inl.h"

#ifndef PTQWATCH_QUANTIZE_GRAM_ONCE_
#define PTQWATCH_QUANTIZE_GRAM_ONCE_
namespace ptqwatch::internal {
namespace {

// Rows packed together: one panel of them stays in the first-level cache.
constexpr int64_t kDepth = 128;
// Rows summed at the working precision before the sum moves to float64.
constexpr int64_t kChunkRows = 256;
// Up to this many inputs a Gram is cheap enough to be exact. GPTQ turns a rounding error of H into
// another code where a weight sits on a rounding tie, and in a small layer one code more is a
// visible share of them.
constexpr int64_t kFloat64Inputs = 256;
// Rows that share one pass over the result, which is what comes from memory.
constexpr int64_t kGroupRows = 1024;
// Result rows per cache block; a multiple of every panel width.
constexpr int64_t kBlock = 48;

// Asks for a block of a [cols, cols] matrix while other work goes on: its rows are far apart in
// memory.
void PrefetchBlock(const double* matrix, int64_t cols, int64_t row, int64_t count, int64_t col,
                   int64_t width) {
  for (int64_t i = row; i < std::min(cols, row + count); ++i) {
    for (int64_t j = col; j < std::min(cols, col + width); j += 8) {
      hwy::Prefetch(matrix + i * cols + j);
    }
  }
}

struct Trace {
  double value = 0;
  double magnitude = 0;  // the same sum over absolute values
};

}  // namespace
}  // namespace ptqwatch::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace {

// Adds tiles of X^T X to a matrix.
class AddToSum {
 public:
  AddToSum(double* sum, int64_t cols) : sum_(sum), cols_(cols) {}

  void Prefetch(int64_t row, int64_t count, int64_t col, int64_t width) {
    PrefetchBlock(sum_, cols_, row, count, col, width);
  }

  template <typename T>
  void Take(const T* HWY_RESTRICT tile, int64_t row, int64_t count, int64_t col, int64_t width) {
    const Tag<double> dd;
    const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
    const bool whole = col + width <= cols_;
    for (int64_t r = 0; r < count && row + r < cols_; ++r, tile += width) {
      double* HWY_RESTRICT out = sum_ + (row + r) * cols_ + col;
      if (whole) {
        for (int64_t j = 0; j < width; j += n) {
          hn::StoreU(hn::Add(hn::LoadU(dd, out + j), LoadDoubles(dd, tile + j)), dd, out + j);
        }
      } else {
        for (int64_t j = 0; j < cols_ - col; ++j) out[j] += static_cast<double>(tile[j]);
      }
    }
  }

 private:
  double* sum_;
  int64_t cols_;
};

// Multiplies tiles of X^T X with a symmetric matrix, entry by entry, and adds up.
class DotWith {
 public:
  DotWith(const double* s, int64_t cols) : s_(s), cols_(cols) {}

  void Prefetch(int64_t row, int64_t count, int64_t col, int64_t width) {
    PrefetchBlock(s_, cols_, row, count, col, width);
  }

  template <typename T>
  void Take(const T* HWY_RESTRICT tile, int64_t row, int64_t count, int64_t col, int64_t width) {
    const Tag<double> dd;
    const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
    auto sum = hn::Zero(dd);
    auto magnitude = hn::Zero(dd);
    for (int64_t r = 0; r < count && row + r < cols_; ++r, tile += width) {
      const int64_t i = row + r;
      const double* HWY_RESTRICT in = s_ + i * cols_ + col;
      if (col > i && col + width <= cols_) {
        for (int64_t j = 0; j < width; j += n) {
          const auto term = hn::Mul(hn::LoadU(dd, in + j), LoadDoubles(dd, tile + j));
          sum = hn::Add(sum, term);
          magnitude = hn::Add(magnitude, hn::Abs(term));
        }
      } else {
        for (int64_t j = std::max<int64_t>(0, i - col); j < std::min(width, cols_ - col); ++j) {
          const double term = (col + j == i ? 1 : 2) * in[j] * static_cast<double>(tile[j]);
          trace_.value += term;
          trace_.magnitude += std::abs(term);
        }
      }
    }
    trace_.value += 2 * hn::GetLane(hn::SumOfLanes(dd, sum));
    trace_.magnitude += 2 * hn::GetLane(hn::SumOfLanes(dd, magnitude));
  }

  Trace trace() const { return trace_; }

 private:
  const double* s_;
  int64_t cols_;
  Trace trace_;
};

// Gives `sink` all tiles that touch the upper triangle of X^T X, over rows [first, first + rows) of
// the source, at most kGroupRows.
template <typename T, class Sink>
absl::Status ForEachTile(ExecutionContext& context, int64_t first, int64_t rows, int64_t cols,
                         RowSource source, Sink& sink) {
  const Tag<T> d;
  const int64_t width = PanelWidth(d);
  const int64_t padded = RoundUp(cols, kBlock);
  const int64_t subs = (rows + kDepth - 1) / kDepth;
  const auto depth_of = [rows](int64_t sub) { return std::min(kDepth, rows - sub * kDepth); };

  // panels: [sub][panel][kDepth][width]; block: the same numbers of kBlock columns as [sub][kBlock
  // / 4][kDepth][4].
  const AlignedBuffer<T> panels = MakeAligned<T>(subs * kDepth * padded);
  const AlignedBuffer<T> block = MakeAligned<T>(subs * kDepth * kBlock);
  const AlignedBuffer<T> tile = MakeAligned<T>(kBlock * width);
  const auto panel = [&](int64_t sub, int64_t p) {
    return panels.get() + sub * kDepth * padded + p * kDepth * width;
  };

  for (int64_t r = 0; r < rows; ++r) {
    const float* x = source(first + r);
    T* out = panel(r / kDepth, 0) + (r % kDepth) * width;
    for (int64_t c = 0; c < padded; c += width, out += kDepth * width) {
      const int64_t have = std::clamp<int64_t>(cols - c, 0, width);
      for (int64_t j = 0; j < have; ++j) out[j] = static_cast<T>(x[c + j]);
      for (int64_t j = have; j < width; ++j) out[j] = T{0};
    }
    if (r % 64 == 63) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    }
  }

  for (int64_t i0 = 0; i0 < padded; i0 += kBlock) {
    for (int64_t sub = 0; sub < subs; ++sub) {
      for (int64_t q = 0; q < kBlock / 4; ++q) {
        T* HWY_RESTRICT out = block.get() + (sub * (kBlock / 4) + q) * kDepth * 4;
        const int64_t column = i0 + 4 * q;
        const T* in = panel(sub, column / width) + column % width;
        if (width % 4 == 0) {
          for (int64_t k = 0; k < depth_of(sub); ++k) {
            std::memcpy(out + 4 * k, in + k * width, 4 * sizeof(T));
          }
          continue;
        }
        // On the narrowest targets four columns may lie in two panels.
        for (int64_t c = 0; c < 4; ++c) {
          in = panel(sub, (column + c) / width) + (column + c) % width;
          for (int64_t k = 0; k < depth_of(sub); ++k) out[4 * k + c] = in[k * width];
        }
      }
    }
    for (int64_t p = i0 / width; p < padded / width; ++p) {
      // Quads of result rows that lie wholly below the diagonal are left out.
      const int64_t quads = std::min(kBlock / 4, ((p + 1) * width - i0 + 3) / 4);
      sink.Prefetch(i0, 4 * quads, p * width, width);
      for (int64_t chunk = 0; chunk < subs; chunk += kChunkRows / kDepth) {
        std::memset(tile.get(), 0, static_cast<size_t>(4 * quads * width) * sizeof(T));
        for (int64_t sub = chunk; sub < std::min(subs, chunk + kChunkRows / kDepth); ++sub) {
          for (int64_t q = 0; q < quads; ++q) {
            MulAddTile(d, depth_of(sub), block.get() + (sub * (kBlock / 4) + q) * kDepth * 4,
                       panel(sub, p), tile.get() + 4 * q * width);
          }
        }
        sink.Take(tile.get(), i0, 4 * quads, p * width, width);
      }
    }
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename T, class Sink>
absl::Status ForEachGroup(ExecutionContext& context, int64_t rows, int64_t cols, RowSource source,
                          Sink& sink) {
  for (int64_t first = 0; first < rows; first += kGroupRows) {
    const int64_t count = std::min(kGroupRows, rows - first);
    if (absl::Status status = ForEachTile<T>(context, first, count, cols, source, sink);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status AddGramOnTarget(ExecutionContext& context, int64_t rows, int64_t cols,
                             RowSource source, double* sum) {
  AddToSum sink(sum, cols);
  return cols <= kFloat64Inputs ? ForEachGroup<double>(context, rows, cols, source, sink)
                                : ForEachGroup<float>(context, rows, cols, source, sink);
}

absl::StatusOr<Trace> TraceOnTarget(ExecutionContext& context, bool float64, int64_t rows,
                                    int64_t cols, RowSource source, const double* s) {
  DotWith sink(s, cols);
  const absl::Status status = float64 ? ForEachGroup<double>(context, rows, cols, source, sink)
                                      : ForEachGroup<float>(context, rows, cols, source, sink);
  if (!status.ok()) return status;
  return sink.trace();
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch {
namespace internal {
namespace {

HWY_EXPORT(AddGramOnTarget);
HWY_EXPORT(TraceOnTarget);

// Below this many multiply-adds float64 costs less than a millisecond.
constexpr double kSmallTrace = 1 << 24;
// Float32 sums of 256 terms are good to about 1e-7 of the sum of magnitudes.
constexpr double kCancellation = 100;

}  // namespace

absl::Status AddGram(ExecutionContext& context, int64_t rows, int64_t cols, RowSource source,
                     double* sum) {
  return HWY_DYNAMIC_DISPATCH(AddGramOnTarget)(context, rows, cols, source, sum);
}

absl::StatusOr<double> QuadraticTrace(ExecutionContext& context, int64_t rows, int64_t cols,
                                      RowSource source, const double* s) {
  const double work =
      static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(cols);
  if (work > kSmallTrace) {
    absl::StatusOr<Trace> trace =
        HWY_DYNAMIC_DISPATCH(TraceOnTarget)(context, false, rows, cols, source, s);
    if (!trace.ok()) return trace.status();
    // Zero, too, is asked again: float32 products may have underflowed.
    if (std::isfinite(trace->magnitude) &&
        trace->magnitude < kCancellation * std::abs(trace->value)) {
      return trace->value;
    }
  }
  absl::StatusOr<Trace> trace =
      HWY_DYNAMIC_DISPATCH(TraceOnTarget)(context, true, rows, cols, source, s);
  if (!trace.ok()) return trace.status();
  return trace->value;
}

bool AnyNonFinite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000u;
  // Counted, not searched: without an early exit the loop is vectorised.
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent);
  }
  return found != 0;
}

}  // namespace internal

namespace {

GramStatistics NoStatistics(int64_t inputs) {
  GramStatistics stats;
  stats.inputs = inputs;
  return stats;
}

}  // namespace

GramAccumulator::GramAccumulator(int64_t inputs) : stats_(NoStatistics(inputs)) {}

absl::Status GramAccumulator::Add(ExecutionContext& context, MatrixView x) try {
  const int64_t d = stats_.inputs;
  if (d < 0) return absl::InvalidArgumentError(internal::StrCat("inputs is ", d));
  if (x.cols != d || x.rows < 0) {
    return absl::InvalidArgumentError(internal::StrCat(
        "x is [", x.rows, ", ", x.cols, "], but the accumulator was made for ", d, " inputs"));
  }
  if (x.rows == 0 || d == 0) {
    stats_.tokens += x.rows;
    return absl::OkStatus();
  }
  if (x.data == nullptr) return absl::InvalidArgumentError("x.data is null");
  if (stats_.sum.empty()) {
    stats_.sum.resize(static_cast<size_t>(d * d));
    stats_.abs_sum.resize(static_cast<size_t>(d));
    stats_.abs_max.resize(static_cast<size_t>(d));
  }
  double* abs_sum = stats_.abs_sum.data();
  float* abs_max = stats_.abs_max.data();

  std::vector<const float*> finite;
  finite.reserve(static_cast<size_t>(std::min(x.rows, internal::kGroupRows)));
  for (int64_t row = 0; row < x.rows;) {
    finite.clear();
    int64_t skipped = 0;
    for (; row < x.rows && static_cast<int64_t>(finite.size()) < internal::kGroupRows; ++row) {
      const float* values = x.data + row * d;
      if (internal::AnyNonFinite(values, d)) {
        ++skipped;
      } else {
        finite.push_back(values);
      }
      if (row % 256 == 255 && context.cancel.cancelled()) break;
    }
    const int64_t count = static_cast<int64_t>(finite.size());
    absl::Status status = context.Checkpoint();
    if (status.ok()) {
      status = internal::AddGram(
          context, count, d, [&finite](int64_t i) { return finite[static_cast<size_t>(i)]; },
          stats_.sum.data());
    }
    if (!status.ok()) {
      // Part of a group may be in the sums: nothing of them may be used.
      stats_ = NoStatistics(d);
      return status;
    }
    for (const float* values : finite) {
      for (int64_t j = 0; j < d; ++j) {
        const float magnitude = std::abs(values[j]);
        abs_sum[j] += static_cast<double>(magnitude);
        abs_max[j] = std::max(abs_max[j], magnitude);
      }
    }
    stats_.tokens += count;
    stats_.skipped_rows += skipped;
  }
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  const int64_t inputs = stats_.inputs;
  stats_ = NoStatistics(inputs);
  return absl::ResourceExhaustedError(
      internal::StrCat("no memory for the second moments of ", inputs, " inputs"));
}

GramStatistics GramAccumulator::Take() {
  const int64_t d = std::max<int64_t>(stats_.inputs, 0);
  GramStatistics taken = std::exchange(stats_, NoStatistics(stats_.inputs));
  taken.sum.resize(static_cast<size_t>(d * d));
  taken.abs_sum.resize(static_cast<size_t>(d));
  taken.abs_max.resize(static_cast<size_t>(d));
  // Mirrored in square blocks, so that neither side is read or written one cache line per number.
  constexpr int64_t kTile = 32;
  double* sum = taken.sum.data();
  for (int64_t i0 = 0; i0 < d; i0 += kTile) {
    for (int64_t j0 = i0; j0 < d; j0 += kTile) {
      for (int64_t i = i0; i < std::min(d, i0 + kTile); ++i) {
        for (int64_t j = std::max(j0, i + 1); j < std::min(d, j0 + kTile); ++j) {
          sum[j * d + i] = sum[i * d + j];
        }
      }
    }
  }
  return taken;
}

}  // namespace ptqwatch
#endif  // HWY_ONCE
