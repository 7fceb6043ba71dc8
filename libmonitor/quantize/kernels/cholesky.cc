#include "quantize/kernels/cholesky.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/aligned_buffer.h"
#include "quantize/kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/cholesky.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "quantize/kernels/micro_kernel-inl.h"

#ifndef PTQWATCH_QUANTIZE_KERNELS_CHOLESKY_ONCE_
#define PTQWATCH_QUANTIZE_KERNELS_CHOLESKY_ONCE_
namespace ptqwatch::internal {

// Memory of the factorisation: L replaces the reversed matrix in place, in panels of `width` rows.
struct FactorStorage {
  // A multiple of every panel width and of 4. Matrices are padded to it with the identity.
  static constexpr int64_t kUnit = 24;

  FactorStorage(int64_t size, int64_t panel_width)
      : width(panel_width), padded(RoundUp(size, kUnit)) {
    factor.size_ = size;
    factor.width_ = width;
    int64_t total = 0;
    for (int64_t p = 0; p < padded / width; ++p) {
      factor.panels_.push_back(total);
      total += Columns(p) * width;
    }
    factor.lower_ = MakeAligned<double>(total);
  }
  // Panel p holds the columns up to its diagonal, rounded up.
  int64_t Columns(int64_t p) const { return RoundUp((p + 1) * width, kUnit); }
  double* Panel(int64_t p) const {
    return factor.lower_.get() + factor.panels_[static_cast<size_t>(p)];
  }
  double& At(int64_t row, int64_t col) const {
    return Panel(row / width)[col * width + row % width];
  }

  int64_t width;
  int64_t padded;
  UpperFactor factor;
};

namespace {

// Columns factorised together.
constexpr int64_t kBlock = 96;
// Columns of L applied together: one panel of them fits the first-level cache.
constexpr int64_t kDepth = 128;
// Panels that one thread fills, updates or solves between two checkpoints.
constexpr int64_t kFillPanels = 4;
constexpr int64_t kUpdatePanels = 16;
constexpr int64_t kSolvePanels = 16;

// The lower triangle of a 4 x 4 piece of L's diagonal, with the reciprocals of the diagonal.
struct Corner {
  double below[4][4];
  double inverse[4];
};

// Plain Cholesky factorisation of the 4 x 4 piece of the updated matrix at (k, k).
bool FactorizeCorner(const FactorStorage& l, int64_t k, Corner* corner) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = l.At(k + i, k + j);
      for (int64_t t = 0; t < j; ++t) sum -= corner->below[i][t] * corner->below[j][t];
      if (i == j) {
        if (!(sum > 0) || !std::isfinite(sum)) return false;
        corner->below[i][i] = std::sqrt(sum);
        corner->inverse[i] = 1 / corner->below[i][i];
      } else {
        corner->below[i][j] = sum * corner->inverse[j];
      }
    }
  }
  return true;
}

// -L[row .. row + 3, begin .. begin + count) as [count][4].
void PackNegated(const FactorStorage& l, int64_t row, int64_t begin, int64_t count, double* out) {
  for (int64_t c = 0; c < 4; ++c) {
    const double* in = &l.At(row + c, begin);
    for (int64_t k = 0; k < count; ++k) out[4 * k + c] = -in[k * l.width];
  }
}

void FillPanel(const PermutedSymmetric& a, const FactorStorage& l, int64_t p) {
  const int64_t n = a.size;
  double* out = l.Panel(p);
  for (int64_t r = 0; r < l.width; ++r) {
    const int64_t row = p * l.width + r;
    const int64_t source = row < n ? a.order[n - 1 - row] : 0;
    const double* values = a.values + source * n;
    const int64_t below = row < n ? row : 0;
    for (int64_t k = 0; k < below; ++k) out[k * l.width + r] = a.scale * values[a.order[n - 1 - k]];
    for (int64_t k = below; k < l.Columns(p); ++k) out[k * l.width + r] = 0;
    out[row * l.width + r] = row < n ? a.diagonal[source] : 1;
  }
}

}  // namespace
}  // namespace ptqwatch::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace {

// Solves four columns of a panel, already updated by all earlier columns, against the corner.
HWY_NOINLINE void SolveTile(const Corner& corner, double* HWY_RESTRICT tile) {
  const Tag<double> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = PanelWidth(d);
  for (int64_t v = 0; v < width; v += n) {
    double* at = tile + v;
    const auto x0 = hn::Mul(hn::Load(d, at), hn::Set(d, corner.inverse[0]));
    auto x1 = hn::NegMulAdd(x0, hn::Set(d, corner.below[1][0]), hn::Load(d, at + width));
    auto x2 = hn::NegMulAdd(x0, hn::Set(d, corner.below[2][0]), hn::Load(d, at + 2 * width));
    auto x3 = hn::NegMulAdd(x0, hn::Set(d, corner.below[3][0]), hn::Load(d, at + 3 * width));
    x1 = hn::Mul(x1, hn::Set(d, corner.inverse[1]));
    x2 = hn::NegMulAdd(x1, hn::Set(d, corner.below[2][1]), x2);
    x3 = hn::NegMulAdd(x1, hn::Set(d, corner.below[3][1]), x3);
    x2 = hn::Mul(x2, hn::Set(d, corner.inverse[2]));
    x3 = hn::NegMulAdd(x2, hn::Set(d, corner.below[3][2]), x3);
    x3 = hn::Mul(x3, hn::Set(d, corner.inverse[3]));
    hn::Store(x0, d, at);
    hn::Store(x1, d, at + width);
    hn::Store(x2, d, at + 2 * width);
    hn::Store(x3, d, at + 3 * width);
  }
}

// Left-looking: subtracts the products of all earlier columns from a block column, then factorises
// it. Threads share the panels; a panel's result does not depend on its thread.
class Factorization {
 public:
  Factorization(const PermutedSymmetric& a, const ExecutionContext& context)
      : a_(a),
        team_(std::pow(static_cast<double>(a.size), 3) / 3, context),
        width_(PanelWidth(Tag<double>())),
        l_(a.size, width_),
        before_(MakeAligned<double>(kBlock * RoundUp(l_.padded, kDepth))),
        inside_(MakeAligned<double>(kBlock * kBlock)) {}

  absl::StatusOr<UpperFactor> Run() {
    PTQWATCH_RETURN_IF_ERROR(ForEachPanel(0, kFillPanels, [&](int64_t p, int64_t end) {
      for (; p < end; ++p) FillPanel(a_, l_, p);
    }));
    for (int64_t j0 = 0; j0 < l_.padded; j0 += kBlock) PTQWATCH_RETURN_IF_ERROR(Factorize(j0));
    return std::move(l_.factor);
  }

 private:
  // Calls work(begin, end) on runs of at most `max_run` panels, beginning at panel `first`.
  template <class Work>
  absl::Status ForEachPanel(int64_t first, int64_t max_run, const Work& work) {
    const int64_t panels = l_.padded / width_;
    const int64_t run = std::clamp<int64_t>((panels - first) / team_.size(), 1, max_run);
    return team_.ForEach((panels - first + run - 1) / run,
                         [&](int, int64_t i, const ExecutionContext& context) {
                           const int64_t begin = first + i * run;
                           work(begin, std::min(panels, begin + run));
                           return context.Checkpoint();
                         });
  }

  absl::Status Factorize(int64_t j0) {
    const int64_t quads = std::min(kBlock, l_.padded - j0) / 4;
    PTQWATCH_RETURN_IF_ERROR(Update(j0, quads));
    PTQWATCH_RETURN_IF_ERROR(FactorizeTop(j0, quads));
    return ForEachPanel((j0 + 4 * quads) / width_, kSolvePanels, [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        double* panel = l_.Panel(p);
        for (int64_t q = 0; q < quads; ++q) {
          double* tile = panel + (j0 + 4 * q) * width_;
          MulAddTile(Tag<double>(), 4 * q, inside_.get() + 4 * q * kBlock, panel + j0 * width_,
                     tile);
          SolveTile(corners_[q], tile);
        }
      }
    });
  }

  // Updates block column j0 by the products of all earlier columns.
  absl::Status Update(int64_t j0, int64_t quads) {
    if (j0 == 0) return absl::OkStatus();
    // before_ is [piece of kDepth columns][quad][kDepth][4].
    const int64_t pieces = (j0 + kDepth - 1) / kDepth;
    const auto depth_of = [j0](int64_t piece) { return std::min(kDepth, j0 - piece * kDepth); };
    PTQWATCH_RETURN_IF_ERROR(
        team_.ForEach(pieces, [&](int, int64_t piece, const ExecutionContext& context) {
          for (int64_t q = 0; q < quads; ++q) {
            PackNegated(l_, j0 + 4 * q, piece * kDepth, depth_of(piece),
                        before_.get() + piece * kDepth * kBlock + 4 * q * kDepth);
          }
          return context.Checkpoint();
        }));
    return ForEachPanel(j0 / width_, kUpdatePanels, [&](int64_t begin, int64_t end) {
      for (int64_t piece = 0; piece < pieces; ++piece) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t needed = std::min(quads, ((p + 1) * width_ - j0 + 3) / 4);
          const double* next = l_.Panel(p + 1 < end ? p + 1 : begin) +
                               (p + 1 < end ? piece : piece + 1) * kDepth * width_;
          const bool last = p + 1 == end && piece + 1 == pieces;
          MulAddTiles(Tag<double>(), depth_of(piece), needed,
                      before_.get() + piece * kDepth * kBlock, 4 * kDepth,
                      l_.Panel(p) + piece * kDepth * width_, l_.Panel(p) + j0 * width_,
                      Ahead<double>{.at = next, .count = last ? 0 : depth_of(piece) * width_});
        }
      }
    });
  }

  // Factorises the panels that hold the block's diagonal, on one thread, because each needs the
  // last.
  absl::Status FactorizeTop(int64_t j0, int64_t quads) {
    const int64_t below = (j0 + 4 * quads) / width_;  // first panel below the block
    for (int64_t q = 0; q < quads; ++q) {
      const int64_t k = j0 + 4 * q;
      double* packed = inside_.get() + 4 * q * kBlock;
      PackNegated(l_, k, j0, 4 * q, packed);
      for (int64_t p = k / width_; p < below; ++p) {
        MulAddTile(Tag<double>(), 4 * q, packed, l_.Panel(p) + j0 * width_,
                   l_.Panel(p) + k * width_);
      }
      if (!FactorizeCorner(l_, k, &corners_[q])) {
        return absl::FailedPreconditionError(StrCat("the matrix is not positive definite: pivot ",
                                                    a_.size - 1 - k, " or the next 3"));
      }
      for (int64_t p = k / width_; p < below; ++p) SolveTile(corners_[q], l_.Panel(p) + k * width_);
    }
    return absl::OkStatus();
  }

  const PermutedSymmetric& a_;
  ThreadTeam team_;
  int64_t width_;
  FactorStorage l_;
  AlignedBuffer<double> before_;
  AlignedBuffer<double> inside_;
  Corner corners_[kBlock / 4];
};

absl::StatusOr<UpperFactor> FactorizeOnTarget(const PermutedSymmetric& a,
                                              const ExecutionContext& context) {
  return Factorization(a, context).Run();
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {
HWY_EXPORT(FactorizeOnTarget);
}  // namespace

double UpperFactor::At(int64_t i, int64_t j) const {
  const int64_t row = size_ - 1 - i;
  const int64_t col = size_ - 1 - j;
  return lower_[static_cast<size_t>(panels_[static_cast<size_t>(row / width_)] + col * width_ +
                                    row % width_)];
}

void UpperFactor::CopyColumn(int64_t j, int64_t count, double* out) const {
  const int64_t offset = (size_ - 1 - j) * width_;
  size_t panel = static_cast<size_t>((size_ - 1) / width_);
  int64_t run = (size_ - 1) % width_ + 1;  // rows left in the panel, read backwards
  for (int64_t i = 0; i < count; i += run, run = width_, --panel) {
    const double* end = lower_.get() + panels_[panel] + offset + run;
    const int64_t take = std::min(run, count - i);
    for (int64_t t = 0; t < take; ++t) out[i + t] = end[-1 - t];
  }
}

absl::StatusOr<UpperFactor> FactorizeUpper(const PermutedSymmetric& a,
                                           const ExecutionContext& context) {
  return HWY_DYNAMIC_DISPATCH(FactorizeOnTarget)(a, context);
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
