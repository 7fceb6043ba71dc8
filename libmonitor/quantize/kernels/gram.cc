#include "quantize/kernels/gram.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "quantize/kernels/aligned_buffer.h"
// Included after aligned_buffer.h, which selects Highway's targets.
#include "base/status_macros.h"
#include "hwy/cache_control.h"
#include "quantize/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/gram.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "quantize/kernels/micro_kernel-inl.h"

#ifndef PTQWATCH_QUANTIZE_KERNELS_GRAM_ONCE_
#define PTQWATCH_QUANTIZE_KERNELS_GRAM_ONCE_
namespace ptqwatch::internal {
namespace {

// Rows packed together: one panel of them stays in the first-level cache.
constexpr int64_t kDepth = 128;
// Rows summed at the working precision before the sum moves to float64.
constexpr int64_t kChunkRows = 256;
// Up to this many inputs a Gram matrix is summed in float64, which is cheap there. If a weight sits
// on a rounding tie, a rounding error of H makes GPTQ choose another code, and in a small layer a
// single code is a visible share of all.
constexpr int64_t kFloat64Inputs = 256;
// Rows that one thread packs at a time.
constexpr int64_t kPackRows = 32;
// Result rows per cache block; a multiple of every panel width.
constexpr int64_t kBlock = 48;

// Prefetches a block of a [cols, cols] matrix, whose rows are far apart in memory.
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

// Adds float64 tiles of X^T X to a matrix.
class AddToSum {
 public:
  AddToSum(double* sum, int64_t cols) : sum_(sum), cols_(cols) {}

  const double* matrix() const { return sum_; }

  // Threads may call this at the same time for tiles of different rows.
  void Take(const double* HWY_RESTRICT tile, int64_t row, int64_t count, int64_t col,
            int64_t width) {
    const Tag<double> dd;
    const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
    const bool whole = col + width <= cols_;
    for (int64_t r = 0; r < count && row + r < cols_; ++r, tile += width) {
      double* HWY_RESTRICT out = sum_ + (row + r) * cols_ + col;
      if (whole) {
        for (int64_t j = 0; j < width; j += n) {
          hn::StoreU(hn::Add(hn::LoadU(dd, out + j), hn::Load(dd, tile + j)), dd, out + j);
        }
      } else {
        for (int64_t j = 0; j < cols_ - col; ++j) out[j] += tile[j];
      }
    }
  }

 private:
  double* sum_;
  int64_t cols_;
};

// Multiplies float64 tiles of X^T X element-wise with a symmetric matrix, and sums the products.
class DotWith {
 public:
  DotWith(const double* s, int64_t cols)
      : s_(s), cols_(cols), traces_(static_cast<size_t>(cols / kBlock + 1)) {}

  const double* matrix() const { return s_; }

  // Threads may call this at the same time for tiles of different row blocks.
  void Take(const double* HWY_RESTRICT tile, int64_t row, int64_t count, int64_t col,
            int64_t width) {
    Trace& trace = traces_[static_cast<size_t>(row / kBlock)];
    const Tag<double> dd;
    const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
    auto sum = hn::Zero(dd);
    auto magnitude = hn::Zero(dd);
    for (int64_t r = 0; r < count && row + r < cols_; ++r, tile += width) {
      const int64_t i = row + r;
      const double* HWY_RESTRICT in = s_ + i * cols_ + col;
      if (col > i && col + width <= cols_) {
        for (int64_t j = 0; j < width; j += n) {
          const auto term = hn::Mul(hn::LoadU(dd, in + j), hn::Load(dd, tile + j));
          sum = hn::Add(sum, term);
          magnitude = hn::Add(magnitude, hn::Abs(term));
        }
      } else {
        for (int64_t j = std::max<int64_t>(0, i - col); j < std::min(width, cols_ - col); ++j) {
          const double term = (col + j == i ? 1 : 2) * in[j] * tile[j];
          trace.value += term;
          trace.magnitude += std::abs(term);
        }
      }
    }
    trace.value += 2 * hn::GetLane(hn::SumOfLanes(dd, sum));
    trace.magnitude += 2 * hn::GetLane(hn::SumOfLanes(dd, magnitude));
  }

  Trace trace() const {
    Trace total;
    for (const Trace& trace : traces_) {
      total.value += trace.value;
      total.magnitude += trace.magnitude;
    }
    return total;
  }

 private:
  const double* s_;
  int64_t cols_;
  std::vector<Trace> traces_;  // one per block of rows
};

// total += part, for `count` numbers.
template <typename T>
void AddWidened(const T* HWY_RESTRICT part, int64_t count, double* HWY_RESTRICT total) {
  const Tag<double> dd;
  const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
  for (int64_t i = 0; i < count; i += n) {
    hn::Store(hn::Add(hn::Load(dd, total + i), LoadDoubles(dd, part + i)), dd, total + i);
  }
}

// Sums tiles of X^T X over groups of rows.
template <typename T>
class TileEngine {
 public:
  TileEngine(ThreadTeam& team, int64_t rows, int64_t cols)
      : team_(team),
        cols_(cols),
        padded_(RoundUp(cols, kBlock)),
        width_(PanelWidth(Tag<T>())),
        panels_(MakeAligned<T>(RoundUp(std::min(rows, kGramGroupRows), kDepth) * padded_)) {
    const int64_t max_rows = std::min(rows, kGramGroupRows);
    for (int i = 0; i < team.size(); ++i) {
      Scratch scratch;
      scratch.row = MakeAligned<float>(cols);
      scratch.block = MakeAligned<T>(RoundUp(max_rows, kDepth) * kBlock);
      scratch.tile = MakeAligned<T>(kBlock * width_);
      scratch.total = MakeAligned<double>(kBlock * width_);
      scratch_.push_back(std::move(scratch));
    }
  }

  // Gives `sink` all tiles that touch the upper triangle of X^T X, over rows [first, first + rows)
  // of the source, at most kGramGroupRows.
  template <class Sink>
  absl::Status Run(int64_t first, int64_t rows, SharedRowSource source, Sink& sink) {
    absl::Status status =
        team_.ForEach((rows + kPackRows - 1) / kPackRows,
                      [&](int thread, int64_t piece, const ExecutionContext& context) {
                        const int64_t begin = piece * kPackRows;
                        const int64_t end = std::min(rows, begin + kPackRows);
                        float* scratch = scratch_[static_cast<size_t>(thread)].row.get();
                        for (int64_t r = begin; r < end; ++r) Pack(source(first + r, scratch), r);
                        return context.Checkpoint();
                      });
    PTQWATCH_RETURN_IF_ERROR(status);
    return team_.ForEach(padded_ / kBlock, [&](int thread, int64_t block,
                                               const ExecutionContext& context) {
      return RunBlock(scratch_[static_cast<size_t>(thread)], block * kBlock, rows, context, sink);
    });
  }

 private:
  struct Scratch {
    AlignedBuffer<float> row;
    AlignedBuffer<T> block;       // [sub][kBlock / 4][kDepth][4]
    AlignedBuffer<T> tile;        // [kBlock][width]: the sum over a chunk
    AlignedBuffer<double> total;  // sum over all chunks
  };

  // panels_ is [sub][panel][kDepth][width]: kDepth rows are a sub.
  T* Panel(int64_t sub, int64_t p) {
    return panels_.get() + sub * kDepth * padded_ + p * kDepth * width_;
  }

  void Pack(const float* x, int64_t r) {
    T* out = Panel(r / kDepth, 0) + (r % kDepth) * width_;
    for (int64_t c = 0; c < padded_; c += width_, out += kDepth * width_) {
      const int64_t have = std::clamp<int64_t>(cols_ - c, 0, width_);
      for (int64_t j = 0; j < have; ++j) out[j] = static_cast<T>(x[c + j]);
      for (int64_t j = have; j < width_; ++j) out[j] = T{0};
    }
  }

  // Packs columns i0 .. i0 + kBlock of a sub, four at a time.
  void PackBlock(int64_t sub, int64_t depth, int64_t i0, T* HWY_RESTRICT out) {
    for (int64_t q = 0; q < kBlock / 4; ++q, out += 4 * kDepth) {
      const int64_t column = i0 + 4 * q;
      const T* in = Panel(sub, column / width_) + column % width_;
      if (width_ % 4 == 0) {
        for (int64_t k = 0; k < depth; ++k) {
          std::memcpy(out + 4 * k, in + k * width_, 4 * sizeof(T));
        }
        continue;
      }
      // On the narrowest targets four columns may lie in two panels.
      for (int64_t c = 0; c < 4; ++c) {
        in = Panel(sub, (column + c) / width_) + (column + c) % width_;
        for (int64_t k = 0; k < depth; ++k) out[4 * k + c] = in[k * width_];
      }
    }
  }

  template <class Sink>
  absl::Status RunBlock(Scratch& scratch, int64_t i0, int64_t rows, const ExecutionContext& context,
                        Sink& sink) {
    const Tag<T> d;
    const int64_t subs = (rows + kDepth - 1) / kDepth;
    const auto depth_of = [rows](int64_t sub) { return std::min(kDepth, rows - sub * kDepth); };
    for (int64_t sub = 0; sub < subs; ++sub) {
      PackBlock(sub, depth_of(sub), i0, scratch.block.get() + sub * kBlock * kDepth);
    }
    // Skips padding.
    const int64_t panels = (cols_ + width_ - 1) / width_;
    const int64_t block_quads = (std::min(kBlock, cols_ - i0) + 3) / 4;
    for (int64_t p = i0 / width_; p < panels; ++p) {
      // Skips quads of result rows that lie entirely below the diagonal.
      const int64_t quads = std::min(block_quads, ((p + 1) * width_ - i0 + 3) / 4);
      const int64_t count = 4 * quads * width_;
      std::fill_n(scratch.total.get(), count, 0.0);
      for (int64_t chunk = 0; chunk < subs; chunk += kChunkRows / kDepth) {
        const int64_t chunk_end = std::min(subs, chunk + kChunkRows / kDepth);
        // The products of the last chunk hide the latency.
        if (chunk_end == subs) {
          PrefetchBlock(sink.matrix(), cols_, i0, 4 * quads, p * width_, width_);
        }
        std::fill_n(scratch.tile.get(), count, T{0});
        for (int64_t sub = chunk; sub < chunk_end; ++sub) {
          Ahead<T> ahead{.at = Panel(sub + 1, p), .count = kDepth * width_};
          if (sub + 1 == subs) ahead = {.at = Panel(0, p + 1), .count = kDepth * width_};
          if (sub + 1 == subs && p + 1 == panels) ahead = {};
          MulAddTiles(d, depth_of(sub), quads, scratch.block.get() + sub * kBlock * kDepth,
                      4 * kDepth, Panel(sub, p), scratch.tile.get(), ahead);
        }
        AddWidened(scratch.tile.get(), count, scratch.total.get());
      }
      sink.Take(scratch.total.get(), i0, 4 * quads, p * width_, width_);
      if (p % 16 == 15) PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    return context.Checkpoint();
  }

  ThreadTeam& team_;
  int64_t cols_;
  int64_t padded_;
  int64_t width_;
  AlignedBuffer<T> panels_;
  std::vector<Scratch> scratch_;  // one per thread
};

template <typename T, class Sink>
absl::Status ForEachGroup(int64_t rows, int64_t cols, SharedRowSource source, Sink& sink,
                          const ExecutionContext& context) {
  const double flop =
      static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(cols);
  ThreadTeam team(flop, context);
  TileEngine<T> engine(team, rows, cols);
  for (int64_t first = 0; first < rows; first += kGramGroupRows) {
    const int64_t count = std::min(kGramGroupRows, rows - first);
    PTQWATCH_RETURN_IF_ERROR(engine.Run(first, count, source, sink));
  }
  return absl::OkStatus();
}

absl::Status AddGramOnTarget(int64_t rows, int64_t cols, SharedRowSource source, double* sum,
                             const ExecutionContext& context) {
  AddToSum sink(sum, cols);
  return cols <= kFloat64Inputs ? ForEachGroup<double>(rows, cols, source, sink, context)
                                : ForEachGroup<float>(rows, cols, source, sink, context);
}

absl::StatusOr<Trace> TraceOnTarget(bool float64, int64_t rows, int64_t cols,
                                    SharedRowSource source, const double* s,
                                    const ExecutionContext& context) {
  DotWith sink(s, cols);
  PTQWATCH_RETURN_IF_ERROR(float64 ? ForEachGroup<double>(rows, cols, source, sink, context)
                                   : ForEachGroup<float>(rows, cols, source, sink, context));
  return sink.trace();
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {

HWY_EXPORT(AddGramOnTarget);
HWY_EXPORT(TraceOnTarget);

// With fewer multiply-adds than this, float64 costs less than a millisecond.
constexpr double kSmallTrace = 1 << 24;
// Float32 sums of 256 terms are accurate to about 1e-7 of the sum of magnitudes.
constexpr double kCancellation = 100;

}  // namespace

absl::Status AddGram(int64_t rows, int64_t cols, SharedRowSource source, double* sum,
                     const ExecutionContext& context) {
  return HWY_DYNAMIC_DISPATCH(AddGramOnTarget)(rows, cols, source, sum, context);
}

absl::StatusOr<double> QuadraticTrace(int64_t rows, int64_t cols, SharedRowSource source,
                                      const double* s, const ExecutionContext& context) {
  const double work =
      static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(cols);
  if (work > kSmallTrace) {
    PTQWATCH_ASSIGN_OR_RETURN(const Trace trace, HWY_DYNAMIC_DISPATCH(TraceOnTarget)(
                                                     false, rows, cols, source, s, context));
    // A zero is computed again too, because float32 products may have underflowed.
    if (std::isfinite(trace.magnitude) && trace.magnitude < kCancellation * std::abs(trace.value)) {
      return trace.value;
    }
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      const Trace trace, HWY_DYNAMIC_DISPATCH(TraceOnTarget)(true, rows, cols, source, s, context));
  return trace.value;
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
