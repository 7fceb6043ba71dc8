#include "fuzz/definition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quantize/kernels/number_format.h"

namespace ptqwatch::fuzz {
namespace {

// Beyond these, float32 arithmetic over- or underflows on the way.
constexpr double kLargest = 1e15;
constexpr double kSmallest = 1e-30;

double Clamp(double x, double low, double high) { return std::min(std::max(x, low), high); }

struct Range {
  double low = 0;
  double high = 0;
};

// H^-1 of an SPD matrix, [d, d]; empty if it is too close to singular for float64.
std::vector<double> Inverse(std::vector<double> a, size_t d) {
  std::vector<double> inverse(d * d);
  for (size_t i = 0; i < d; ++i) inverse[i * d + i] = 1;
  double largest = 0;
  for (size_t i = 0; i < d; ++i) largest = std::max(largest, a[i * d + i]);
  for (size_t k = 0; k < d; ++k) {
    const double pivot = a[k * d + k];
    if (!(pivot > 1e-7 * largest)) return {};
    for (size_t i = 0; i < d; ++i) {
      if (i == k) continue;
      const double factor = a[i * d + k] / pivot;
      for (size_t j = 0; j < d; ++j) {
        a[i * d + j] -= factor * a[k * d + j];
        inverse[i * d + j] -= factor * inverse[k * d + j];
      }
    }
    for (size_t j = 0; j < d; ++j) {
      a[k * d + j] /= pivot;
      inverse[k * d + j] /= pivot;
    }
  }
  return inverse;
}

class Comparison {
 public:
  Comparison(MatrixView weight, const GramStatistics* statistics, const QuantizerSpec& spec,
             const QuantizedWeight& result)
      : weight_(weight),
        statistics_(statistics != nullptr && statistics->tokens > 0 ? statistics : nullptr),
        spec_(spec),
        format_(internal::NumbersOf(spec)),
        result_(result) {}

  std::string Run() {
    for (int64_t i = 0; i < weight_.rows * weight_.cols; ++i) {
      const double size = std::abs(static_cast<double>(weight_.data[i]));
      if (size > kLargest || (size > 0 && size < kSmallest)) return "";
    }
    if (spec_.method == QuantizationMethod::kNf4) {
      CompareNf4();
    } else if (spec_.method == QuantizationMethod::kLlmInt8) {
      CompareInt8();
    } else {
      CompareGrid();
    }
    CompareLoss();
    return difference_;
  }

 private:
  double W(int64_t r, int64_t c) const {
    return static_cast<double>(weight_.data[r * weight_.cols + c]);
  }
  size_t At(int64_t r, int64_t c) const { return static_cast<size_t>(r * weight_.cols + c); }
  bool ByGptq() const {
    return spec_.method == QuantizationMethod::kGptq &&
           (result_.status == LayerStatus::kOk || result_.status == LayerStatus::kDamped);
  }
  bool ByAwq() const { return !result_.channel_scale.empty(); }
  bool IsDead(int64_t c) const {
    return ByGptq() && statistics_->sum[static_cast<size_t>(c * weight_.cols + c)] == 0;
  }
  // The weight that gets a grid.
  double Fitted(int64_t r, int64_t c) const {
    if (IsDead(c)) return 0;
    const double scale =
        ByAwq() ? static_cast<double>(result_.channel_scale[static_cast<size_t>(c)]) : 1;
    return W(r, c) * scale;
  }

  void Differ(const char* what, int64_t row, int64_t col, double got, double expected) {
    if (!difference_.empty()) return;
    difference_ = std::string(what) + " of [" + std::to_string(row) + ", " + std::to_string(col) +
                  "] is " + std::to_string(got) + ", by definition " + std::to_string(expected);
  }

  double Limit(std::vector<double> group) const {
    const double n = static_cast<double>(group.size());
    if (spec_.clip == ClipSearch::kStd) {
      double mean = 0;
      for (double w : group) mean += w / n;
      double squares = 0;
      for (double w : group) squares += (w - mean) * (w - mean);
      return spec_.clip_value * std::sqrt(squares / (n - 1));
    }
    for (double& w : group) w = std::abs(w);
    std::sort(group.begin(), group.end());
    // torch.quantile takes a float32.
    const double rank = static_cast<double>(static_cast<float>(spec_.clip_value / 100)) * (n - 1);
    const auto below = static_cast<size_t>(rank);
    const size_t above = std::min(below + 1, group.size() - 1);
    return group[below] + (rank - static_cast<double>(below)) * (group[above] - group[below]);
  }

  Range RangeOf(const std::vector<double>& group) const {
    Range range;
    for (double w : group) range = {std::min(range.low, w), std::max(range.high, w)};
    if (spec_.symmetric || format_.is_float()) {
      range.high = std::max(-range.low, range.high);
      if (spec_.clip == ClipSearch::kStd || spec_.clip == ClipSearch::kPercentile) {
        const double limit = Limit(group);
        if (static_cast<float>(limit) > 0) range.high = limit;
      }
      range.low = -range.high;
    }
    if (!(range.high > range.low)) range = {-1, 1};
    return range;
  }

  // The scale in float64, before it is rounded to its type.
  double ScaleOf(Range range) const {
    if (format_.is_float()) return range.high / static_cast<double>(format_.largest);
    const double steps = (1 << spec_.bits) - (spec_.narrow_range ? 2 : 1);
    return std::max((range.high - range.low) / steps, spec_.min_scale);
  }

  void CompareScale(int64_t r, int64_t c, double scale, double expected) {
    if (format_.scale != internal::GroupScale::kSpec) return;
    double relative = 1e-5;
    double absolute = 0;
    if (spec_.scale_dtype == ScaleDtype::kFloat16) {
      relative = 0x1.01p-11;
      absolute = 0x1p-24;
    } else if (spec_.scale_dtype == ScaleDtype::kBFloat16) {
      relative = 0x1.01p-8;
    }
    const double tolerance = relative * expected + absolute;
    const bool low = scale < expected - tolerance && spec_.clip != ClipSearch::kMse;
    if (low || scale > expected + tolerance) Differ("scale", r, c, scale, expected);
  }

  // Compares a code with the number of steps that it should be.
  void CompareInteger(int64_t r, int64_t c, double steps, double tolerance) {
    const double bottom = spec_.narrow_range ? 1 : 0;
    const double nearest = Clamp(steps, bottom, (1 << spec_.bits) - 1);
    const double code = result_.codes[At(r, c)];
    if (std::abs(nearest - code) > 0.5 + tolerance) Differ("code", r, c, code, steps);
  }

  void CompareNumber(int64_t r, int64_t c, double steps, double tolerance) {
    const auto distance = [&](int code) {
      return std::abs(steps - static_cast<double>(format_.Level(static_cast<uint8_t>(code))));
    };
    const uint8_t got = result_.codes[At(r, c)];
    double least = std::numeric_limits<double>::max();
    for (int code = 0; code < 1 << format_.bits; ++code) {
      if (std::abs(format_.Level(static_cast<uint8_t>(code))) > format_.largest) continue;
      least = std::min(least, distance(code));
    }
    const double level = static_cast<double>(format_.Level(got));
    if (std::abs(level) > static_cast<double>(format_.largest) ||
        distance(got) > least + tolerance * (1 + std::abs(level))) {
      Differ("number", r, c, level, steps);
    }
  }

  void CompareGrid() {
    const int64_t size = internal::GroupSizeOf(spec_, weight_.cols);
    const int64_t groups = (weight_.cols + size - 1) / size;
    if (ByGptq() && !Eliminate()) return;
    for (int64_t r = 0; r < weight_.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        CompareGroup(r, g * size, std::min(weight_.cols, (g + 1) * size),
                     static_cast<size_t>(r * groups + g));
      }
      if (ByGptq()) CompareGptqRow(r, size, groups);
    }
  }

  void CompareGroup(int64_t r, int64_t begin, int64_t end, size_t group) {
    std::vector<double> weights;
    for (int64_t c = begin; c < end; ++c) weights.push_back(Fitted(r, c));
    const Range range = RangeOf(weights);
    // Float32 does not tell deviations of almost equal weights from none.
    const double largest =
        std::abs(*std::max_element(weights.begin(), weights.end(),
                                   [](double a, double b) { return std::abs(a) < std::abs(b); }));
    if (spec_.clip == ClipSearch::kStd && range.high < 1e-4 * largest * spec_.clip_value) return;
    const double scale = static_cast<double>(result_.scale[group]);
    const double zero = static_cast<double>(result_.zero[group]);
    CompareScale(r, begin, scale, ScaleOf(range));
    if (!format_.is_float() && !spec_.symmetric && spec_.clip != ClipSearch::kMse) {
      const double exact = Clamp(-range.low / scale, 0, (1 << spec_.bits) - 1);
      if (std::abs(exact - zero) > 0.5 + 1e-4) Differ("zero", r, begin, zero, exact);
    }
    const double divisor = spec_.round_scale_last ? ScaleOf(range) : scale;
    for (int64_t c = begin; c < end; ++c) {
      const double code = result_.codes[At(r, c)];
      const double number = format_.is_float()
                                ? static_cast<double>(format_.Level(result_.codes[At(r, c)]))
                                : code - zero;
      double decoded = scale * number;
      if (ByAwq()) decoded /= static_cast<double>(result_.channel_scale[static_cast<size_t>(c)]);
      const double got = static_cast<double>(result_.dequantized[At(r, c)]);
      if (std::abs(got - decoded) > 1e-6 * std::abs(decoded) + 1e-36) {
        Differ("decoded weight", r, c, got, decoded);
      }
      if (ByGptq()) continue;
      double w = weights[static_cast<size_t>(c - begin)];
      if (spec_.round_scale_last) w = Clamp(w, range.low, range.high);
      CompareCode(r, c, w / divisor, zero, 1e-5);
    }
  }

  void CompareCode(int64_t r, int64_t c, double steps, double zero, double tolerance) {
    if (format_.is_float()) {
      CompareNumber(r, c, steps, tolerance);
    } else {
      CompareInteger(r, c, steps + zero, tolerance * (1 + std::min(std::abs(steps), 512.0)));
    }
  }

  // Finds how an error in a column changes each later one. False if H is too close to singular.
  bool Eliminate() {
    const auto d = static_cast<size_t>(weight_.cols);
    const double factor = 2.0 / static_cast<double>(statistics_->tokens);
    std::vector<double> h(d * d);
    for (size_t i = 0; i < d; ++i) {
      for (size_t j = 0; j < d; ++j) {
        const size_t from =
            static_cast<size_t>(result_.order[i]) * d + static_cast<size_t>(result_.order[j]);
        double value = factor * statistics_->sum[from];
        if (i == j) value = (value == 0 ? 1 : value) + result_.damp_value;
        h[i * d + j] = value;
      }
    }
    std::vector<double> inverse = Inverse(std::move(h), d);
    if (inverse.empty()) return false;
    feedback_.assign(d * d, 0);
    for (size_t k = 0; k < d; ++k) {
      for (size_t j = k + 1; j < d; ++j) {
        feedback_[k * d + j] = inverse[k * d + j] / inverse[k * d + k];
        largest_feedback_ = std::max(largest_feedback_, std::abs(feedback_[k * d + j]));
      }
      for (size_t i = k + 1; i < d; ++i) {
        for (size_t j = k + 1; j < d; ++j) {
          inverse[i * d + j] -= inverse[i * d + k] * feedback_[k * d + j];
        }
      }
    }
    return true;
  }

  void CompareGptqRow(int64_t r, int64_t size, int64_t groups) {
    const auto d = static_cast<size_t>(weight_.cols);
    std::vector<double> running(d);
    for (size_t k = 0; k < d; ++k) running[k] = Fitted(r, result_.order[k]);
    double peak = 0;
    for (size_t k = 0; k < d; ++k) {
      const int64_t c = result_.order[k];
      const auto group = static_cast<size_t>(r * groups + c / size);
      const double scale = static_cast<double>(result_.scale[group]);
      peak = std::max(peak, std::abs(running[k]));
      // The engine keeps these in float32.
      const double tolerance = 1e-5 * (1 + peak / scale) * (1 + largest_feedback_);
      if (tolerance > 0.1) return;
      CompareCode(r, c, running[k] / scale, static_cast<double>(result_.zero[group]), tolerance);
      const double error = running[k] - static_cast<double>(result_.dequantized[At(r, c)]);
      for (size_t j = k + 1; j < d; ++j) {
        running[j] -= error * feedback_[k * d + j];
        peak = std::max(peak, std::abs(running[j]));
      }
    }
  }

  void CompareInt8() {
    const auto& kept = result_.outlier_columns;
    for (int64_t r = 0; r < weight_.rows; ++r) {
      const double scale = static_cast<double>(result_.scale[static_cast<size_t>(r)]);
      double largest = 0;
      for (int64_t c = 0; c < weight_.cols; ++c) largest = std::max(largest, std::abs(W(r, c)));
      CompareScale(r, 0, scale, largest / 127);
      for (int64_t c = 0; c < weight_.cols; ++c) {
        const double code = static_cast<double>(result_.codes[At(r, c)]) - 128;
        const double steps = largest == 0 ? 0 : Clamp(W(r, c) / scale, -127, 127);
        if (std::abs(steps - code) > 0.5 + 1e-4) Differ("code", r, c, code, steps);
        const double decoded =
            std::find(kept.begin(), kept.end(), c) != kept.end() ? W(r, c) : code * scale;
        const double got = static_cast<double>(result_.dequantized[At(r, c)]);
        if (std::abs(got - decoded) > 1e-6 * std::abs(decoded)) {
          Differ("decoded weight", r, c, got, decoded);
        }
      }
    }
  }

  void CompareNf4() {
    const int64_t count = weight_.rows * weight_.cols;
    for (int64_t begin = 0; begin < count; begin += kNf4Block) {
      const double absmax =
          static_cast<double>(result_.scale[static_cast<size_t>(begin / kNf4Block)]);
      for (int64_t i = begin; i < std::min(count, begin + kNf4Block); ++i) {
        const double x =
            absmax == 0 ? 0 : Clamp(static_cast<double>(weight_.data[i]) / absmax, -1, 1);
        const auto distance = [x](float level) { return std::abs(x - static_cast<double>(level)); };
        double least = 2;
        for (float level : Nf4Levels()) least = std::min(least, distance(level));
        const float got = Nf4Levels()[result_.codes[static_cast<size_t>(i)]];
        if (distance(got) > least + 1e-6) Differ("level", 0, i, static_cast<double>(got), x);
      }
    }
  }

  void CompareLoss() {
    if (statistics_ == nullptr || !result_.loss) return;
    const int64_t d = weight_.cols;
    double loss = 0;
    double size = 0;
    for (int64_t r = 0; r < weight_.rows; ++r) {
      for (int64_t i = 0; i < d; ++i) {
        const double a = W(r, i) - static_cast<double>(result_.dequantized[At(r, i)]);
        for (int64_t j = 0; j < d; ++j) {
          const double b = W(r, j) - static_cast<double>(result_.dequantized[At(r, j)]);
          const double part = a * b * statistics_->sum[static_cast<size_t>(i * d + j)];
          loss += part;
          size += std::abs(part);
        }
      }
    }
    const double factor = 2.0 / static_cast<double>(statistics_->tokens);
    if (std::isfinite(size) && std::abs(*result_.loss - factor * loss) > 1e-4 * factor * size) {
      Differ("loss", 0, 0, *result_.loss, factor * loss);
    }
  }

  MatrixView weight_;
  const GramStatistics* statistics_;
  const QuantizerSpec& spec_;
  const internal::NumberFormat& format_;
  const QuantizedWeight& result_;
  std::vector<double> feedback_;
  double largest_feedback_ = 0;
  std::string difference_;
};

}  // namespace

std::string DifferenceFromDefinition(MatrixView weight, const GramStatistics* statistics,
                                     const QuantizerSpec& spec, const QuantizedWeight& result) {
  return Comparison(weight, statistics, spec, result).Run();
}

}  // namespace ptqwatch::fuzz
