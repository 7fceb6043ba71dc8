// Speed of GPTQ on one layer, phase by phase, beside what LibTorch's BLAS does on one thread. All
// numbers of a size come from one run with interleaved repeats: times are minima, ratios medians of
// the repeats. FLOP are counted as reference implementations count them: n d^2 for the Gram (one
// triangle), d^3 / 3 for the factor, m d^2 for the loop. "Quantize" is everything after the Gram,
// "with baselines" the same with rtn_loss and output_energy, which the published form does not
// compute: m d^2 each. "A snapshot" is what a monitor's default quantizers take for this layer one
// after the other, sharing what they can. The floor is one dpotrf and m d^2 at the rate of SGEMM.
// Rounding to nearest in several formats follows, over a copy of the weight; --rounding prints that
// alone.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/repeats.h"
#include "benchmarks/rounding_ratio.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/cholesky.h"
#include "quantize/kernels/gptq_loop.h"
#include "quantize/kernels/grid.h"

#ifdef PTQWATCH_BENCH_WITH_TORCH
#include "benchmarks/quantize_peers.h"
#endif

namespace ptqwatch::benchmarks {
namespace {

constexpr int64_t kTokens = 4096;
constexpr int64_t kGemmSize = 2048;
constexpr double kGemmFlop = 2.0 * kGemmSize * kGemmSize * kGemmSize;

struct Size {
  int64_t rows, cols;
};

struct Arguments {
  bool quick = false;
  bool rounding = false;
  int repeats = 5;
  int threads = 1;
};

// Neighbouring channels are correlated, and one in 128 is 30 times larger.
std::vector<float> Inputs(int64_t rows, int64_t cols) {
  std::vector<float> x = Gaussian(rows * cols, 1);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.data() + r * cols;
    for (int64_t c = 1; c < cols; ++c) row[c] = 0.8f * row[c - 1] + 0.6f * row[c];
    for (int64_t c = 0; c < cols; c += 128) row[c] *= 30;
  }
  return x;
}

struct Row {
  Size size;
  Times gram, factor, loop, quantize, baselines;
  Times gemm, dpotrf, published;
  Times sgemm, dgemm;           // kGemmSize cubed
  std::vector<Times> snapshot;  // [quantizer]

  double updates() const {
    return static_cast<double>(size.rows * size.cols) * static_cast<double>(size.cols);
  }
  double Floor(size_t repeat) const {
    return dpotrf.at(repeat) + updates() * sgemm.at(repeat) / kGemmFlop;
  }
};

// One layer and everything the timed calls need.
class Layer {
 public:
  Layer(Size size, int threads)
      : size_(size),
        inputs_(Inputs(kTokens, size.cols)),
        weight_(Gaussian(size.rows * size.cols, 2)),
        gram_(size.cols) {
    context_.threads = threads;
    Gram();
    statistics_ = gram_.Take();
    Gram();
    diagonal_.resize(static_cast<size_t>(size.cols));
    const double scale = 2.0 / kTokens;
    double mean = 0;
    for (int64_t i = 0; i < size.cols; ++i) {
      diagonal_[static_cast<size_t>(i)] =
          scale * statistics_.sum[static_cast<size_t>(i * size.cols + i)];
      mean += diagonal_[static_cast<size_t>(i)] / static_cast<double>(size.cols);
    }
    for (double& value : diagonal_) value += 0.01 * mean;
    order_.resize(static_cast<size_t>(size.cols));
    std::iota(order_.begin(), order_.end(), int64_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
      return diagonal_[static_cast<size_t>(a)] > diagonal_[static_cast<size_t>(b)];
    });
    grid_ = internal::EmptyGrid(size.rows, size.cols, QuantizerSpec{});
    for (int64_t r = 0; r < size.rows; ++r) {
      internal::FitRow(weight_.data() + r * size.cols, r, &grid_);
    }
    codes_.resize(weight_.size());
  }

  // Into sums that are already there, as LibTorch's GEMM is given its output.
  void Gram() {
    const absl::Status status =
        gram_.Add({.data = inputs_.data(), .rows = kTokens, .cols = size_.cols}, context_);
    if (!status.ok()) Fail("Gram", status);
  }

  internal::UpperFactor Factor() {
    return OrFail(internal::FactorizeUpper({.values = statistics_.sum.data(),
                                            .size = size_.cols,
                                            .order = order_.data(),
                                            .scale = 2.0 / kTokens,
                                            .diagonal = diagonal_.data()},
                                           context_),
                  "factor");
  }

  void Loop(const internal::UpperFactor& factor) {
    const internal::FeedbackMatrix feedback =
        OrFail(internal::FeedbackMatrix::Pack(factor, order_, context_), "feedback");
    OrFail(internal::RunGptq(view(), grid_, feedback, codes_.data(), context_), "loop");
  }

  void Quantize(bool baselines) {
    LayerQuantizer alone = Sharing();
    Quantize(alone, {.baselines = baselines});
  }

  LayerQuantizer Sharing() const { return LayerQuantizer(view(), &statistics_); }
  void Quantize(LayerQuantizer& quantizer, const QuantizerSpec& spec) {
    const QuantizedWeight result = OrFail(quantizer.Quantize(spec, context_), "Quantize");
    if (result.status != LayerStatus::kOk) Fail("Quantize", absl::UnknownError("layer status"));
  }

  const std::vector<float>& inputs() const { return inputs_; }
  const std::vector<float>& weight() const { return weight_; }
  std::vector<double> Hessian() const {
    std::vector<double> h = statistics_.sum;
    for (double& value : h) value *= 2.0 / kTokens;
    return h;
  }

 private:
  MatrixView view() const {
    return {.data = weight_.data(), .rows = size_.rows, .cols = size_.cols};
  }

  Size size_;
  std::vector<float> inputs_;
  std::vector<float> weight_;
  ExecutionContext context_;
  GramAccumulator gram_;
  GramStatistics statistics_;
  std::vector<double> diagonal_;
  std::vector<int64_t> order_;
  internal::Grid grid_;
  std::vector<uint8_t> codes_;
};

Row Measure(Size size, const Arguments& arguments) {
  Row row;
  row.size = size;
  const bool wall = arguments.threads > 1;
  Layer layer(size, arguments.threads);
  const internal::UpperFactor factor = layer.Factor();
  const std::vector<QuantizerSpec> specs = DefaultQuantizers();
  row.snapshot.resize(specs.size());
#ifdef PTQWATCH_BENCH_WITH_TORCH
  QuantizePeers peers(layer.inputs(), layer.weight(), layer.Hessian(), kTokens, size.rows,
                      size.cols);
#endif
  for (int i = 0; i < arguments.repeats; ++i) {
#ifdef PTQWATCH_BENCH_WITH_TORCH
    row.sgemm.Time(false, [] { Sgemm(kGemmSize); });
    row.dgemm.Time(false, [] { Dgemm(kGemmSize); });
    peers.RestoreFactorInput();
    row.dpotrf.Time(false, [&] { peers.Dpotrf(); });
    row.gemm.Time(false, [&] { peers.GramGemm(); });
#endif
    row.gram.Time(wall, [&] { layer.Gram(); });
    row.factor.Time(wall, [&] { layer.Factor(); });
    row.loop.Time(wall, [&] { layer.Loop(factor); });
    row.quantize.Time(wall, [&] { layer.Quantize(false); });
    row.baselines.Time(wall, [&] { layer.Quantize(true); });
    LayerQuantizer sharing = layer.Sharing();
    for (size_t q = 0; q < specs.size(); ++q) {
      row.snapshot[q].Time(wall, [&] { layer.Quantize(sharing, specs[q]); });
    }
#ifdef PTQWATCH_BENCH_WITH_TORCH
    row.published.Time(false, [&] { peers.PublishedGptq(); });
#endif
  }
  return row;
}

std::string Ms(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", 1e3 * seconds);
  return text;
}

void PrintSize(Size size) {
  std::printf("%lldx%lld |", static_cast<long long>(size.rows), static_cast<long long>(size.cols));
}

void PrintTimes(const std::vector<Row>& rows, bool peers) {
  std::printf("milliseconds | Gram | factor | loop | Quantize | with baselines |");
  for (const QuantizerSpec& spec : DefaultQuantizers()) {
    std::printf(" %s%d |", std::string(ToString(spec.method)).c_str(), spec.bits);
  }
  if (peers) std::printf(" X^T X by GEMM | dpotrf | published |");
  std::printf("\n");
  for (const Row& row : rows) {
    PrintSize(row.size);
    std::vector<const Times*> times = {&row.gram, &row.factor, &row.loop, &row.quantize,
                                       &row.baselines};
    for (const Times& quantizer : row.snapshot) times.push_back(&quantizer);
    if (peers) times.insert(times.end(), {&row.gemm, &row.dpotrf, &row.published});
    for (const Times* of : times) std::printf(" %s |", Ms(of->seconds()).c_str());
    std::printf("\n");
  }
}

void PrintRatios(const std::vector<Row>& rows) {
  std::printf(
      "\nratios | GEMM / Gram | factor / dpotrf | SGEMM rate / loop | Quantize / floor | with "
      "baselines | published / Quantize |\n");
  const auto over = [](const Times& a, const Times& b) { return Ratio(Over(a, b)); };
  const auto floors = [](const Row& row, const Times& time) {
    return Ratio(SpreadOf(time.repeats(), [&](size_t i) { return time.at(i) / row.Floor(i); }));
  };
  for (const Row& row : rows) {
    PrintSize(row.size);
    const Spread loop = SpreadOf(row.loop.repeats(), [&](size_t i) {
      return row.updates() * row.sgemm.at(i) / kGemmFlop / row.loop.at(i);
    });
    std::printf(" %s | %s | %s | %s | %s | %s |\n", over(row.gemm, row.gram).c_str(),
                over(row.factor, row.dpotrf).c_str(), Ratio(loop).c_str(),
                floors(row, row.quantize).c_str(), floors(row, row.baselines).c_str(),
                over(row.published, row.quantize).c_str());
  }
  std::printf("\na snapshot, each quantizer / floor |");
  const std::vector<QuantizerSpec> specs = DefaultQuantizers();
  for (const QuantizerSpec& spec : specs) {
    std::printf(" %s%d |", std::string(ToString(spec.method)).c_str(), spec.bits);
  }
  std::printf(" mean of GPTQ | all together |\n");
  for (const Row& row : rows) {
    PrintSize(row.size);
    for (const Times& time : row.snapshot) std::printf(" %s |", floors(row, time).c_str());
    const auto sum = [&](size_t repeat, bool gptq_alone) {
      double seconds = 0;
      int count = 0;
      for (size_t q = 0; q < specs.size(); ++q) {
        if (gptq_alone && specs[q].method != QuantizationMethod::kGptq) continue;
        seconds += row.snapshot[q].at(repeat);
        ++count;
      }
      return seconds / row.Floor(repeat) / (gptq_alone ? count : 1);
    };
    const size_t repeats = row.gram.repeats();
    std::printf(" %s | %s |\n",
                Ratio(SpreadOf(repeats, [&](size_t i) { return sum(i, true); })).c_str(),
                Ratio(SpreadOf(repeats, [&](size_t i) { return sum(i, false); })).c_str());
  }
}

void Print(const std::vector<Row>& rows) {
#ifdef PTQWATCH_BENCH_WITH_TORCH
  const auto rate = [&](Times Row::*times) {
    double least = std::numeric_limits<double>::infinity();
    for (const Row& row : rows) least = std::min(least, (row.*times).seconds());
    return 1e-9 * kGemmFlop / least;
  };
  std::printf("SGEMM %.1f GFLOP/s, DGEMM %.1f GFLOP/s (%lld^3)\n\n", rate(&Row::sgemm),
              rate(&Row::dgemm), static_cast<long long>(kGemmSize));
  PrintTimes(rows, true);
  PrintRatios(rows);
#else
  PrintTimes(rows, false);
#endif
}

// Positive numbers only; exits with the usage otherwise.
Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (name == "--quick") {
      arguments.quick = true;
    } else if (name == "--rounding") {
      arguments.rounding = true;
    } else if (name == "--repeats" && value > 0) {
      arguments.repeats = value;
      ++i;
    } else if (name == "--threads" && value > 0) {
      arguments.threads = value;
      ++i;
    } else {
      std::fprintf(stderr, "usage: %s [--quick] [--rounding] [--repeats N] [--threads N]\n",
                   argv[0]);
      std::exit(2);
    }
  }
  return arguments;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  if (arguments.rounding) {
    PrintRoundingRatios(arguments.repeats);
    return 0;
  }
  std::vector<Size> sizes = {{1024, 1024}, {4096, 1024}, {2048, 2048}};
  if (!arguments.quick) sizes.push_back({4096, 4096});
  std::printf(
      "4 bits, group 128, symmetric, static act-order, %lld tokens, %d thread(s) for "
      "ptqwatch, 1 for LibTorch, %d interleaved repeats of %s time\n",
      static_cast<long long>(kTokens), arguments.threads, arguments.repeats,
      arguments.threads > 1 ? "wall" : "CPU");
  std::vector<Row> rows;
  for (Size size : sizes) rows.push_back(Measure(size, arguments));
  Print(rows);
  PrintRoundingRatios(arguments.repeats);
  return 0;
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) { return ptqwatch::benchmarks::Main(argc, argv); }
