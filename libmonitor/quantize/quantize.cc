#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "quantize/cholesky.h"
#include "quantize/gptq.h"
#include "quantize/gram.h"
#include "quantize/grid.h"
#include "report/str_cat.h"

namespace ptqwatch {
namespace {

using internal::StrCat;

// Holds bytes of the context's budget as long as it lives.
class Reservation {
 public:
  explicit Reservation(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (budget_ != nullptr && bytes_ > 0) budget_->Release(bytes_);
  }
  absl::Status Take(int64_t bytes, std::string_view what) {
    if (budget_ == nullptr) return absl::OkStatus();
    absl::Status status = budget_->Reserve(bytes, what);
    if (status.ok()) bytes_ += bytes;
    return status;
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  int64_t bytes_ = 0;
};

// How many rows may pass between two looks at the context: about 64 K numbers.
int64_t RowsPerLook(int64_t cols) { return std::max<int64_t>(1, (1 << 16) / cols); }

// H = 2 / tokens * sum, as the quantizers see it.
struct Hessian {
  const double* sum = nullptr;
  double scale = 0;
  int64_t size = 0;

  double Diagonal(int64_t i) const { return scale * sum[i * size + i]; }
};

QuantizedWeight WithoutCodes(LayerStatus status, std::string detail) {
  QuantizedWeight result;
  result.status = status;
  result.status_detail = std::move(detail);
  return result;
}

absl::Status CheckShapes(MatrixView weight, const GramStatistics* statistics,
                         const QuantizerSpec& spec) {
  if (weight.rows < 0 || weight.cols < 0) {
    return absl::InvalidArgumentError(
        StrCat("the weight's shape is [", weight.rows, ", ", weight.cols, "]"));
  }
  if (weight.data == nullptr && weight.rows > 0 && weight.cols > 0) {
    return absl::InvalidArgumentError("weight.data is null");
  }
  if (statistics == nullptr) {
    if (spec.method != QuantizationMethod::kGptq) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "GPTQ needs statistics of the layer's inputs; there are none");
  }
  if (statistics->inputs != weight.cols) {
    return absl::InvalidArgumentError(StrCat("statistics.inputs is ", statistics->inputs,
                                             ", but the weight has ", weight.cols, " columns"));
  }
  if (static_cast<int64_t>(statistics->sum.size()) != weight.cols * weight.cols) {
    return absl::InvalidArgumentError(StrCat("statistics.sum has ", statistics->sum.size(),
                                             " numbers; ", weight.cols, " inputs need ",
                                             weight.cols * weight.cols));
  }
  if (statistics->tokens < 0) {
    return absl::InvalidArgumentError(StrCat("statistics.tokens is ", statistics->tokens));
  }
  return absl::OkStatus();
}

// The first place where the data is not finite, in words; empty when all is finite.
absl::StatusOr<std::string> FindNonFinite(ExecutionContext& context, MatrixView weight,
                                          const GramStatistics* statistics) {
  const int64_t step = RowsPerLook(weight.cols);
  for (int64_t r = 0; r < weight.rows; ++r) {
    const float* row = weight.data + r * weight.cols;
    if (internal::AnyNonFinite(row, weight.cols)) {
      const auto bad =
          std::find_if(row, row + weight.cols, [](float w) { return !std::isfinite(w); });
      return StrCat("weight[", r, ", ", bad - row, "] is ", *bad);
    }
    if (r % step == 0) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    }
  }
  if (statistics == nullptr) return std::string();
  for (int64_t i = 0; i < weight.cols; ++i) {
    const double* row = statistics->sum.data() + i * weight.cols;
    // 0 * x is NaN for whatever is not finite, and NaN stays in a sum.
    double sum = 0;
    for (int64_t j = i; j < weight.cols; ++j) sum += 0 * row[j];
    if (std::isnan(sum)) return StrCat("row ", i, " of the inputs' second moments is not finite");
    if (i % step == 0) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    }
  }
  return std::string();
}

// False when a grid overflows float32.
absl::StatusOr<bool> FitGrid(ExecutionContext& context, MatrixView weight, bool symmetric,
                             internal::Grid* grid) {
  const int64_t step = RowsPerLook(weight.cols);
  for (int64_t r = 0; r < weight.rows; ++r) {
    if (!internal::FitRow(weight.data + r * weight.cols, r, symmetric, grid)) return false;
    if (r % step == 0) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    }
  }
  return true;
}

// tr(E H E^T) for the rows E[r] = weight[r] - decoded(r); a null `decoded` stands for zeros.
using Decoder = absl::FunctionRef<void(int64_t row, float* out)>;
absl::StatusOr<std::optional<double>> ErrorTrace(ExecutionContext& context, MatrixView weight,
                                                 const Hessian& h, const Decoder* decoded) {
  std::vector<float> row(static_cast<size_t>(weight.cols));
  const auto source = [&](int64_t r) -> const float* {
    const float* w = weight.data + r * weight.cols;
    if (decoded == nullptr) return w;
    (*decoded)(r, row.data());
    for (int64_t c = 0; c < weight.cols; ++c) {
      row[static_cast<size_t>(c)] = w[c] - row[static_cast<size_t>(c)];
    }
    return row.data();
  };
  absl::StatusOr<double> trace =
      internal::QuadraticTrace(context, weight.rows, weight.cols, source, h.sum);
  if (!trace.ok()) return trace.status();
  // H is positive semidefinite: what is below zero is rounding.
  const double value = std::max(0.0, h.scale * *trace);
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

absl::Status AddOutputEnergy(ExecutionContext& context, MatrixView weight, const Hessian& h,
                             QuantizedWeight* result) {
  absl::StatusOr<std::optional<double>> energy = ErrorTrace(context, weight, h, nullptr);
  if (!energy.ok()) return energy.status();
  result->output_energy = *energy;
  return absl::OkStatus();
}

absl::Status AddRtnLoss(ExecutionContext& context, MatrixView weight, const Hessian& h,
                        const internal::Grid& grid, QuantizedWeight* result) {
  const auto round = [&](int64_t r, float* out) {
    internal::RoundRow(grid, r, weight.data + r * weight.cols, nullptr, out);
  };
  const Decoder decoder = round;
  absl::StatusOr<std::optional<double>> loss = ErrorTrace(context, weight, h, &decoder);
  if (!loss.ok()) return loss.status();
  result->rtn_loss = *loss;
  return absl::OkStatus();
}

void MakeRoom(MatrixView weight, QuantizedWeight* result) {
  const size_t count = static_cast<size_t>(weight.rows * weight.cols);
  result->codes.resize(count);
  result->dequantized.resize(count);
}

void TakeGrid(internal::Grid grid, QuantizedWeight* result) {
  result->scale = std::move(grid.scale);
  result->zero = std::move(grid.zero);
}

absl::StatusOr<QuantizedWeight> RoundToNearest(ExecutionContext& context, MatrixView weight,
                                               const Hessian* h, const QuantizerSpec& spec,
                                               LayerStatus status, std::string detail) {
  internal::Grid grid = internal::EmptyGrid(weight.rows, weight.cols, spec);
  absl::StatusOr<bool> fits = FitGrid(context, weight, spec.symmetric, &grid);
  if (!fits.ok()) return fits.status();
  if (!*fits) {
    return WithoutCodes(LayerStatus::kUnsupported, "a weight is too large for a float32 grid");
  }
  QuantizedWeight result = WithoutCodes(status, std::move(detail));
  MakeRoom(weight, &result);
  const int64_t step = RowsPerLook(weight.cols);
  for (int64_t r = 0; r < weight.rows; ++r) {
    const int64_t begin = r * weight.cols;
    internal::RoundRow(grid, r, weight.data + begin, result.codes.data() + begin,
                       result.dequantized.data() + begin);
    if (r % step == 0) {
      if (absl::Status check = context.Checkpoint(); !check.ok()) return check;
    }
  }
  if (h != nullptr) {
    if (absl::Status done = AddRtnLoss(context, weight, *h, grid, &result); !done.ok()) return done;
    if (absl::Status done = AddOutputEnergy(context, weight, *h, &result); !done.ok()) return done;
    result.loss = result.rtn_loss;
  }
  TakeGrid(std::move(grid), &result);
  return result;
}

// The weight with the columns of inputs that were always zero set to zero; empty when there are
// none.
absl::StatusOr<std::vector<float>> ZeroDeadColumns(ExecutionContext& context, MatrixView weight,
                                                   const std::vector<double>& diagonal) {
  std::vector<int64_t> dead;
  for (size_t c = 0; c < diagonal.size(); ++c) {
    if (diagonal[c] == 0) dead.push_back(static_cast<int64_t>(c));
  }
  std::vector<float> copy;
  if (dead.empty()) return copy;
  copy.reserve(static_cast<size_t>(weight.rows * weight.cols));
  const int64_t step = RowsPerLook(weight.cols);
  for (int64_t r = 0; r < weight.rows; ++r) {
    const float* row = weight.data + r * weight.cols;
    copy.insert(copy.end(), row, row + weight.cols);
    for (int64_t c : dead) copy[static_cast<size_t>(r * weight.cols + c)] = 0;
    if (r % step == 0) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    }
  }
  return copy;
}

std::vector<int64_t> ProcessingOrder(const std::vector<double>& diagonal, QuantizationOrder order) {
  std::vector<int64_t> columns(diagonal.size());
  std::iota(columns.begin(), columns.end(), int64_t{0});
  if (order == QuantizationOrder::kStaticAct) {
    std::stable_sort(columns.begin(), columns.end(), [&](int64_t a, int64_t b) {
      return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
    });
  }
  return columns;
}

double MeanOfLive(const std::vector<double>& diagonal) {
  double sum = 0;
  int64_t live = 0;
  for (double value : diagonal) {
    sum += value;
    live += value != 0;
  }
  return live > 0 ? sum / static_cast<double>(live) : 0;
}

struct GptqRun {
  internal::GptqErrors errors;
  double damp = 0;
  double damp_value = 0;
};

// Factorises and quantizes, with ten times the damping after each failure up to 1; NotFound when
// nothing helped.
absl::StatusOr<GptqRun> ClimbDampLadder(ExecutionContext& context, MatrixView weight,
                                        const internal::Grid& grid, const Hessian& h,
                                        const std::vector<double>& diagonal,
                                        const std::vector<int64_t>& order, double first_damp,
                                        uint8_t* codes) {
  constexpr double kLeastRaise =
      1e-4;  // where ten times the damping would still be next to nothing
  const double mean = MeanOfLive(diagonal);
  for (double damp = first_damp;; damp = std::clamp(10 * damp, kLeastRaise, 1.0)) {
    const double damp_value = damp * mean;
    std::vector<double> damped(diagonal);
    for (double& value : damped) value = (value == 0 ? 1 : value) + damp_value;
    absl::StatusOr<internal::UpperFactor> factor =
        internal::FactorizeUpper(context, {.values = h.sum,
                                           .size = h.size,
                                           .order = order.data(),
                                           .scale = h.scale,
                                           .diagonal = damped.data()});
    if (factor.ok()) {
      absl::StatusOr<internal::GptqErrors> errors =
          internal::RunGptq(context, weight, grid, order, *factor, codes);
      if (!errors.ok()) return errors.status();
      if (std::isfinite(errors->damped_loss) && std::isfinite(errors->squared_norm)) {
        return GptqRun{.errors = *errors, .damp = damp, .damp_value = damp_value};
      }
    } else if (!absl::IsFailedPrecondition(factor.status())) {
      return factor.status();
    }
    if (damp >= 1) {
      return absl::NotFoundError(
          StrCat("H could not be factorised with damp ", first_damp, " nor any up to ", damp));
    }
  }
}

absl::StatusOr<QuantizedWeight> Gptq(ExecutionContext& context, MatrixView weight, const Hessian& h,
                                     const QuantizerSpec& spec) {
  std::vector<double> diagonal(static_cast<size_t>(h.size));
  for (int64_t i = 0; i < h.size; ++i) diagonal[static_cast<size_t>(i)] = h.Diagonal(i);
  absl::StatusOr<std::vector<float>> zeroed = ZeroDeadColumns(context, weight, diagonal);
  if (!zeroed.ok()) return zeroed.status();
  MatrixView live = weight;
  if (!zeroed->empty()) live.data = zeroed->data();

  internal::Grid grid = internal::EmptyGrid(weight.rows, weight.cols, spec);
  absl::StatusOr<bool> fits = FitGrid(context, live, spec.symmetric, &grid);
  if (!fits.ok()) return fits.status();
  if (!*fits) {
    return WithoutCodes(LayerStatus::kUnsupported, "a weight is too large for a float32 grid");
  }

  QuantizedWeight result;
  MakeRoom(weight, &result);
  result.order = ProcessingOrder(diagonal, spec.order);
  absl::StatusOr<GptqRun> run = ClimbDampLadder(context, live, grid, h, diagonal, result.order,
                                                spec.damp, result.codes.data());
  if (absl::IsNotFound(run.status())) {
    return RoundToNearest(context, weight, &h, spec, LayerStatus::kRtnFallback,
                          std::string(run.status().message()));
  }
  if (!run.ok()) return run.status();
  if (run->damp != spec.damp) {
    result.status = LayerStatus::kDamped;
    result.status_detail = StrCat("damp ", run->damp, " instead of ", spec.damp);
  }
  result.damp = run->damp;
  result.damp_value = run->damp_value;

  const int64_t step = RowsPerLook(weight.cols);
  for (int64_t r = 0; r < weight.rows; ++r) {
    const int64_t begin = r * weight.cols;
    internal::DecodeRow(grid, r, result.codes.data() + begin, result.dequantized.data() + begin);
    if (r % step == 0) {
      if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    }
  }

  const double damped = run->errors.damped_loss;
  const double undamped = damped - run->damp_value * run->errors.squared_norm;
  result.loss_damped = damped;
  // The difference is free, but loses as many digits as the damping takes of it; and with few
  // weights the float32 errors of its terms do not average out.
  constexpr double kLeastShare = 0.05;
  constexpr int64_t kManyWeights = 1 << 16;
  if (undamped > kLeastShare * damped && weight.rows * weight.cols >= kManyWeights) {
    result.loss = undamped;
  } else {
    const auto copy = [&](int64_t r, float* out) {
      std::copy_n(result.dequantized.data() + r * weight.cols, weight.cols, out);
    };
    const Decoder decoder = copy;
    absl::StatusOr<std::optional<double>> loss = ErrorTrace(context, weight, h, &decoder);
    if (!loss.ok()) return loss.status();
    result.loss = *loss;
  }
  if (absl::Status done = AddRtnLoss(context, live, h, grid, &result); !done.ok()) {
    return done;
  }
  if (absl::Status done = AddOutputEnergy(context, weight, h, &result); !done.ok()) return done;
  TakeGrid(std::move(grid), &result);
  return result;
}

// An estimate of what one call holds at its peak, the result included.
int64_t WorkingBytes(MatrixView weight, const QuantizerSpec& spec) {
  const int64_t result = 5 * weight.rows * weight.cols;
  const int64_t panels = 12288 * weight.cols;
  if (spec.method == QuantizationMethod::kRtn) return result + panels;
  return result + panels + 4 * weight.rows * weight.cols + 6 * weight.cols * weight.cols;
}

absl::StatusOr<QuantizedWeight> QuantizeOrThrow(ExecutionContext& context, MatrixView weight,
                                                const GramStatistics* statistics,
                                                const QuantizerSpec& spec) {
  if (absl::Status status = Validate(spec); !status.ok()) return status;
  if (absl::Status status = CheckShapes(weight, statistics, spec); !status.ok()) return status;
  if (weight.rows == 0 || weight.cols == 0) {
    return WithoutCodes(LayerStatus::kUnsupported,
                        StrCat("the weight is empty: [", weight.rows, ", ", weight.cols, "]"));
  }
  if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
  Reservation reservation(context.bytes);
  if (absl::Status status = reservation.Take(WorkingBytes(weight, spec), "quantizing a weight");
      !status.ok()) {
    return status;
  }
  absl::StatusOr<std::string> bad = FindNonFinite(context, weight, statistics);
  if (!bad.ok()) return bad.status();
  if (!bad->empty()) return WithoutCodes(LayerStatus::kNonFinite, *std::move(bad));

  const int64_t tokens = statistics == nullptr ? 0 : statistics->tokens;
  Hessian h;
  if (tokens > 0) {
    h = {.sum = statistics->sum.data(),
         .scale = 2.0 / static_cast<double>(tokens),
         .size = weight.cols};
  }
  const Hessian* measured = tokens > 0 ? &h : nullptr;
  if (spec.method == QuantizationMethod::kRtn) {
    return RoundToNearest(context, weight, measured, spec, LayerStatus::kOk, "");
  }
  const double needed = spec.min_tokens_ratio * static_cast<double>(weight.cols);
  if (tokens == 0 || static_cast<double>(tokens) < needed) {
    return RoundToNearest(context, weight, measured, spec, LayerStatus::kTooFewTokens,
                          StrCat(tokens, " tokens for ", weight.cols, " inputs; GPTQ needs ",
                                 std::max(1.0, std::ceil(needed))));
  }
  return Gptq(context, weight, h, spec);
}

}  // namespace

absl::StatusOr<QuantizedWeight> Quantize(ExecutionContext& context, MatrixView weight,
                                         const GramStatistics* statistics,
                                         const QuantizerSpec& spec) {
  try {
    return QuantizeOrThrow(context, weight, statistics, spec);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        StrCat("no memory to quantize a weight of [", weight.rows, ", ", weight.cols, "]"));
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace ptqwatch
