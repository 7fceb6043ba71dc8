#include "quantize/kernels/gptq_loop.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status_macros.h"
#include "quantize/kernels/aligned_buffer.h"
#include "quantize/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/gptq_loop.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "quantize/kernels/grid_points-inl.h"
#include "quantize/kernels/micro_kernel-inl.h"

#ifndef PTQWATCH_QUANTIZE_KERNELS_GPTQ_ONCE_
#define PTQWATCH_QUANTIZE_KERNELS_GPTQ_ONCE_
namespace ptqwatch::internal {
namespace {

// Columns quantized together, and earlier columns applied at a time.
constexpr int64_t kBlock = FeedbackMatrix::kBlock;
// The maximum number of tiles (panel-wide sets of rows) that go through all columns together: their
// current block fits the second-level cache.
constexpr int64_t kMaxGroupTiles = 16;

// Some rows of the problem, transposed, in tiles of `width` rows. Padding rows are and stay zero.
struct RowGroup {
  RowGroup(int64_t tiles, int64_t tile_width, int64_t columns, int64_t grid_groups,
           int64_t original_columns)
      : width(tile_width),
        cols(columns),
        groups(grid_groups + 1),
        delta(MakeAligned<float>(tiles * columns * width)),
        current(MakeAligned<float>(tiles * kBlock * width)),
        scale(MakeAligned<float>(tiles * groups * width)),
        zero(MakeAligned<float>(tiles * groups * width)),
        codes(MakeAligned<uint8_t>(tiles * (original_columns + 1) * width)),
        code_cols(original_columns + 1) {}

  float* Delta(int64_t tile, int64_t k) { return delta.get() + (tile * cols + k) * width; }
  float* Current(int64_t tile, int64_t k) { return current.get() + (tile * kBlock + k) * width; }
  float* Scale(int64_t tile, int64_t g) { return scale.get() + (tile * groups + g) * width; }
  float* Zero(int64_t tile, int64_t g) { return zero.get() + (tile * groups + g) * width; }
  uint8_t* Codes(int64_t tile, int64_t column) {
    return codes.get() + (tile * code_cols + column) * width;
  }

  int64_t width;
  int64_t cols;                  // in processing order, padded to a multiple of 4
  int64_t groups;                // the grid's groups, and one for padding columns
  AlignedBuffer<float> delta;    // [tile][k][width]: w_k, and w_k - q_k once k is done
  AlignedBuffer<float> current;  // [tile][kBlock][width]: w'_k, and w'_k - q_k once k is done
  AlignedBuffer<float> scale;    // [tile][groups][width]
  AlignedBuffer<float> zero;
  AlignedBuffer<uint8_t> codes;  // [tile][original column][width], and one padding column
  int64_t code_cols;
};

// The original column and group of the k-th column; one past the last for padding.
struct ColumnMap {
  std::vector<int64_t> column;
  std::vector<int64_t> group;
  std::vector<int64_t> position;  // by original column
};

ColumnMap MapColumns(const Grid& grid, const std::vector<int64_t>& order, int64_t padded) {
  ColumnMap map;
  map.column.assign(static_cast<size_t>(padded), grid.cols);
  map.group.assign(static_cast<size_t>(padded), grid.groups);
  map.position.resize(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    map.column[k] = order[k];
    map.group[k] = order[k] / grid.group_size;
    map.position[static_cast<size_t>(order[k])] = static_cast<int64_t>(k);
  }
  return map;
}

void LoadTile(MatrixView weight, const Grid& grid, const ColumnMap& map, int64_t first,
              int64_t tile, RowGroup* group) {
  constexpr int64_t kStrip = 16;  // a cache line of each row at a time
  const int64_t width = group->width;
  const int64_t have = std::clamp<int64_t>(weight.rows - first, 0, width);
  for (int64_t c0 = 0; c0 < weight.cols; c0 += kStrip) {
    const int64_t count = std::min(kStrip, weight.cols - c0);
    float* out[kStrip];
    for (int64_t c = 0; c < count; ++c) {
      out[c] = group->Delta(tile, map.position[static_cast<size_t>(c0 + c)]);
    }
    for (int64_t r = 0; r < have; ++r) {
      const float* in = weight.data + (first + r) * weight.cols + c0;
      for (int64_t c = 0; c < count; ++c) out[c][r] = in[c];
    }
    for (int64_t c = 0; c < count; ++c) std::fill(out[c] + have, out[c] + width, 0.0f);
  }
  for (int64_t k = weight.cols; k < group->cols; ++k) {
    std::fill_n(group->Delta(tile, k), width, 0.0f);
  }
  for (int64_t g = 0; g < group->groups; ++g) {
    for (int64_t r = 0; r < width; ++r) {
      const bool real = g < grid.groups && r < have;
      const size_t at = static_cast<size_t>((first + r) * grid.groups + g);
      group->Scale(tile, g)[r] = real ? grid.scale[at] : 1;
      group->Zero(tile, g)[r] = real ? grid.zero[at] : grid.min_code();  // 0 decodes to 0
    }
  }
}

void StoreCodes(int64_t rows, int64_t cols, int64_t first, int64_t tile, RowGroup* group,
                uint8_t* codes) {
  constexpr int64_t kStrip = 64;
  const int64_t have = std::clamp<int64_t>(rows - first, 0, group->width);
  for (int64_t c0 = 0; c0 < cols; c0 += kStrip) {
    const int64_t count = std::min(kStrip, cols - c0);
    const uint8_t* in = group->Codes(tile, c0);
    for (int64_t r = 0; r < have; ++r) {
      uint8_t* out = codes + (first + r) * cols + c0;
      for (int64_t c = 0; c < count; ++c) out[c] = in[c * group->width + r];
    }
  }
}

}  // namespace
}  // namespace ptqwatch::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace {

// Quantizes the columns k .. k + 3 of a tile, already updated by all earlier columns.
template <class Points>
HWY_NOINLINE void QuantizeQuad(const ColumnMap& map, const float* HWY_RESTRICT ratios,
                               const Points& points, int64_t tile, int64_t k, int64_t k_in_block,
                               RowGroup* group) {
  const Tag<float> d;
  const hn::Rebind<uint8_t, decltype(d)> db;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = group->width;
  float* current = group->Current(tile, k_in_block);
  float* delta = group->Delta(tile, k);
#pragma GCC unroll 4
  for (int64_t c = 0; c < 4; ++c) {
    const size_t at = static_cast<size_t>(k + c);
    const float* scale = group->Scale(tile, map.group[at]);
    const float* zero = group->Zero(tile, map.group[at]);
    uint8_t* codes = group->Codes(tile, map.column[at]);
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3 * n; v += n) {
      auto w = hn::Load(d, current + c * width + v);
#pragma GCC unroll 3
      for (int64_t j = 0; j < c; ++j) {
        w = hn::MulAdd(hn::Load(d, delta + j * width + v), hn::Set(d, ratios[4 * j + c]), w);
      }
      typename Points::Codes code;
      const auto q = points.Round(w, hn::Load(d, scale + v), hn::Load(d, zero + v), &code);
      hn::Store(hn::Sub(hn::Load(d, delta + c * width + v), q), d, delta + c * width + v);
      hn::Store(hn::Sub(w, q), d, current + c * width + v);
      hn::StoreU(hn::DemoteTo(db, code), db, codes + v);
    }
  }
}

// Sum of squares of [count][width] floats, each row times weights[row]^2, or 1 without weights.
HWY_NOINLINE double SumOfSquares(const float* HWY_RESTRICT values, int64_t count, int64_t width,
                                 const double* HWY_RESTRICT weights) {
  const Tag<double> dd;
  const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
  auto total = hn::Zero(dd);
  for (int64_t k = 0; k < count; ++k, values += width) {
    auto sum = hn::Zero(dd);
    for (int64_t v = 0; v < width; v += n) {
      const auto x = LoadDoubles(dd, values + v);
      sum = hn::MulAdd(x, x, sum);
    }
    const double weight = weights == nullptr ? 1 : weights[k];
    total = hn::MulAdd(sum, hn::Set(dd, weight * weight), total);
  }
  return hn::GetLane(hn::SumOfLanes(dd, total));
}

// One run of the loop. Threads share groups of rows, which are independent of each other.
class Loop {
 public:
  Loop(MatrixView weight, const Grid& grid, const FeedbackMatrix& feedback, uint8_t* codes,
       const ExecutionContext& context)
      : weight_(weight),
        grid_(grid),
        codes_(codes),
        team_(static_cast<double>(weight.rows) * static_cast<double>(weight.cols) *
                  static_cast<double>(weight.cols),
              context),
        feedback_(feedback),
        cols_(4 * feedback.quads()),
        map_(MapColumns(grid, feedback.order(), cols_)),
        tiles_((weight.rows + width_ - 1) / width_),
        errors_(static_cast<size_t>(tiles_)) {
    // A multiple of the number of threads, so that they finish at the same time.
    const int64_t threads = team_.size();
    const int64_t rounds = (tiles_ + kMaxGroupTiles * threads - 1) / (kMaxGroupTiles * threads);
    group_tiles_ = (tiles_ + rounds * threads - 1) / (rounds * threads);
    for (int64_t i = 0; i < threads; ++i) {
      groups_.emplace_back(group_tiles_, width_, cols_, grid.groups, weight.cols);
    }
  }

  absl::StatusOr<GptqErrors> Run() {
    PTQWATCH_RETURN_IF_ERROR(
        team_.ForEach((tiles_ + group_tiles_ - 1) / group_tiles_,
                      [&](int thread, int64_t i, const ExecutionContext& context) {
                        const int64_t first = i * group_tiles_;
                        return RunTiles(first, std::min(group_tiles_, tiles_ - first), context,
                                        &groups_[static_cast<size_t>(thread)]);
                      }));
    // Summed by tile, so that the result does not depend on the grouping.
    GptqErrors total;
    for (const GptqErrors& errors : errors_) {
      total.damped_loss += errors.damped_loss;
      total.squared_norm += errors.squared_norm;
    }
    return total;
  }

 private:
  absl::Status RunTiles(int64_t first, int64_t tiles, const ExecutionContext& context,
                        RowGroup* group) {
    for (int64_t t = 0; t < tiles; ++t) {
      LoadTile(weight_, grid_, map_, (first + t) * width_, t, group);
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    for (int64_t k0 = 0; k0 < cols_; k0 += kBlock) {
      const int64_t count = std::min(kBlock, cols_ - k0);
      PTQWATCH_RETURN_IF_ERROR(ApplyEarlier(k0, count, tiles, context, group));
      for (int64_t t = 0; t < tiles; ++t) {
        QuantizeBlock(k0, count, t, group, &errors_[static_cast<size_t>(first + t)]);
      }
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    for (int64_t t = 0; t < tiles; ++t) {
      StoreCodes(weight_.rows, weight_.cols, (first + t) * width_, t, group, codes_);
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    return absl::OkStatus();
  }

  // Adds the products with the columns of all earlier blocks to the current block.
  absl::Status ApplyEarlier(int64_t k0, int64_t count, int64_t tiles,
                            const ExecutionContext& context, RowGroup* group) {
    const Tag<float> d;
    for (int64_t t = 0; t < tiles; ++t) {
      std::memcpy(group->Current(t, 0), group->Delta(t, k0),
                  static_cast<size_t>(count * width_) * sizeof(float));
    }
    for (int64_t j0 = 0; j0 < k0; j0 += kBlock) {
      for (int64_t t = 0; t < tiles; ++t) {
        Ahead<float> ahead{.at = group->Delta(t + 1, j0), .count = kBlock * width_};
        if (t + 1 == tiles) {
          const int64_t next = j0 + kBlock;
          ahead = {.at = group->Delta(0, next), .count = std::min(kBlock, cols_ - next) * width_};
        }
        MulAddTiles(d, kBlock, count / 4, feedback_.At(j0, k0 / 4), FeedbackMatrix::kQuad,
                    group->Delta(t, j0), group->Current(t, 0), ahead);
      }
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    return absl::OkStatus();
  }

  // Quantizes the block four columns at a time, each updated by the block's earlier columns.
  void QuantizeBlock(int64_t k0, int64_t count, int64_t t, RowGroup* group, GptqErrors* errors) {
    const Tag<float> d;
    double diagonal[kBlock];
    for (int64_t k = 0; k < count; ++k) diagonal[k] = feedback_.diagonal(k0 + k);
    WithPoints(d, grid_, [&](const auto& points) {
      for (int64_t q = 0; q < count / 4; ++q) {
        const int64_t k = k0 + 4 * q;
        MulAddTile(d, 4 * q, feedback_.At(k0, k / 4), group->Delta(t, k0),
                   group->Current(t, 4 * q));
        QuantizeQuad(map_, feedback_.At(k, k / 4), points, t, k, 4 * q, group);
      }
    });
    errors->damped_loss += SumOfSquares(group->Current(t, 0), count, width_, diagonal);
    errors->squared_norm += SumOfSquares(group->Delta(t, k0), count, width_, nullptr);
  }

  MatrixView weight_;
  const Grid& grid_;
  uint8_t* codes_;
  const int64_t width_ = PanelWidth(Tag<float>());
  ThreadTeam team_;
  const FeedbackMatrix& feedback_;
  int64_t cols_;
  ColumnMap map_;
  int64_t tiles_;
  int64_t group_tiles_ = 0;
  std::vector<GptqErrors> errors_;  // [tile]
  std::vector<RowGroup> groups_;    // one per thread
};

absl::StatusOr<GptqErrors> RunGptqOnTarget(MatrixView weight, const Grid& grid,
                                           const FeedbackMatrix& feedback, uint8_t* codes,
                                           const ExecutionContext& context) {
  return Loop(weight, grid, feedback, codes, context).Run();
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {
HWY_EXPORT(RunGptqOnTarget);
}  // namespace

absl::StatusOr<GptqErrors> RunGptq(MatrixView weight, const Grid& grid,
                                   const FeedbackMatrix& feedback, uint8_t* codes,
                                   const ExecutionContext& context) {
  return HWY_DYNAMIC_DISPATCH(RunGptqOnTarget)(weight, grid, feedback, codes, context);
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
