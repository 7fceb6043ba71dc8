#include "benchmarks/rounding_ratio.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "base/huge_pages.h"
#include "benchmarks/repeats.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/stored_size.h"
#include "quantize/kernels/grid.h"

namespace ptqwatch::benchmarks {
namespace {

// The compiler may not leave out what writes to `data`.
void Keep(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

struct Rounding {
  Times new_copy;                        // into new memory
  Times huge_copy, quantize, baselines;  // into new memory in huge pages, as results are
  Times copy, kernels;                   // into memory that exists
  Times stored_size;                     // of the result
};

class RoundedWeight {
 public:
  RoundedWeight(int64_t rows, int64_t cols)
      : rows_(rows), cols_(cols), weight_(Gaussian(rows * cols, 3)), decoded_(weight_.size()) {
    codes_.resize(weight_.size());
  }

  void Measure(const QuantizerSpec& spec, Rounding* times) {
    times->new_copy.Time(false, [&] { Keep(std::vector<float>(weight_).data()); });
    times->huge_copy.Time(false, [&] {
      std::vector<float> copy;
      internal::ReserveHuge(weight_.size(), &copy);
      copy.assign(weight_.begin(), weight_.end());
      Keep(copy.data());
    });
    for (const bool baselines : {false, true}) {
      QuantizerSpec with = spec;
      with.baselines = baselines;
      Times& time = baselines ? times->baselines : times->quantize;
      time.Time(false, [&] {
        Keep(OrFail(Quantize({weight_.data(), rows_, cols_}, nullptr, with), "RTN").codes.data());
      });
    }
    const QuantizedWeight result =
        OrFail(Quantize({weight_.data(), rows_, cols_}, nullptr, spec), "RTN");
    times->stored_size.Time(false, [&] {
      const StoredSize size = StoredSizeOf(result, spec, rows_, cols_);
      Keep(&size);
    });
    times->copy.Time(false, [&] {
      std::memcpy(decoded_.data(), weight_.data(), weight_.size() * sizeof(float));
      Keep(decoded_.data());
    });
    internal::Grid grid = internal::EmptyGrid(rows_, cols_, spec);
    internal::SetTensorScale(6, &grid);
    times->kernels.Time(false, [&] {
      for (int64_t r = 0; r < rows_; ++r) {
        const float* row = weight_.data() + r * cols_;
        internal::FitRow(row, r, &grid);
        internal::RoundRow(grid, r, row, codes_.data() + r * cols_, decoded_.data() + r * cols_);
      }
      Keep(decoded_.data());
    });
  }

 private:
  int64_t rows_;
  int64_t cols_;
  std::vector<float> weight_;
  std::vector<float> decoded_;
  std::vector<uint8_t> codes_;
};

struct RangeRule {
  ClipSearch clip;
  double value;
};
constexpr RangeRule kRangeRules[] = {{ClipSearch::kNone, 0},
                                     {ClipSearch::kStd, 12.85},
                                     {ClipSearch::kPercentile, 99.99984},
                                     {ClipSearch::kPercentile, 99.5},
                                     {ClipSearch::kPercentile, 90}};

// RTN at 6 bits with each rule over the same without one.
void PrintRangeRatios(int repeats) {
  std::printf("\nRTN with a rule for ranges on one thread, Quantize / Quantize without one |");
  for (const RangeRule& rule : kRangeRules) {
    std::printf(" %s %g |", std::string(ToString(rule.clip)).c_str(), rule.value);
  }
  std::printf("\n");
  for (const int64_t size : {1024, 4096}) {
    const std::vector<float> weight = Gaussian(size * size, 3);
    for (const int group_size : {128, -1}) {
      std::vector<Times> times(std::size(kRangeRules));
      for (int i = 0; i < repeats; ++i) {
        for (size_t k = 0; k < times.size(); ++k) {
          const QuantizerSpec spec{.method = QuantizationMethod::kRtn,
                                   .bits = 6,
                                   .group_size = group_size,
                                   .narrow_range = true,
                                   .clip = kRangeRules[k].clip,
                                   .clip_value = kRangeRules[k].value};
          times[k].Time(false, [&] {
            Keep(OrFail(Quantize({weight.data(), size, size}, nullptr, spec), "RTN").codes.data());
          });
        }
      }
      std::printf("%lld^2 g%d |", static_cast<long long>(size), group_size);
      for (const Times& time : times) std::printf(" %s |", Ratio(Over(time, times[0])).c_str());
      std::printf("\n");
    }
  }
}

}  // namespace

void PrintRoundingRatios(int repeats) {
  const auto per_weight = [](double seconds, int64_t weights) {
    return 1e9 * seconds / static_cast<double>(weights);
  };
  std::printf(
      "\nRTN on one thread over a copy of the weight, ratios | ns a weight: new copy, copy in huge "
      "pages, Quantize | Quantize / new copy | with error parts | Quantize / copy in huge pages | "
      "kernels / copy into existing memory | size of the codes: ns a weight, / Quantize |\n");
  for (const int64_t size : {512, 1024, 2048, 4096}) {
    RoundedWeight weight(size, size);
    for (const char* name : {"rtn4", "rtn8", "rtn-fp8_e4m3", "rtn-mxfp4", "rtn-nvfp4"}) {
      const QuantizerSpec spec = OrFail(ParseQuantizer(name), name);
      Rounding times;
      for (int i = 0; i < repeats; ++i) weight.Measure(spec, &times);
      std::printf("%lld^2 %s | %.2f, %.2f, %.2f | %s | %s | %s | %s | %.2f, %s |\n",
                  static_cast<long long>(size), name,
                  per_weight(times.new_copy.seconds(), size * size),
                  per_weight(times.huge_copy.seconds(), size * size),
                  per_weight(times.quantize.seconds(), size * size),
                  Ratio(Over(times.quantize, times.new_copy)).c_str(),
                  Ratio(Over(times.baselines, times.new_copy)).c_str(),
                  Ratio(Over(times.quantize, times.huge_copy)).c_str(),
                  Ratio(Over(times.kernels, times.copy)).c_str(),
                  per_weight(times.stored_size.seconds(), size * size),
                  Ratio(Over(times.stored_size, times.quantize)).c_str());
    }
  }
  PrintRangeRatios(repeats);
}

}  // namespace ptqwatch::benchmarks
