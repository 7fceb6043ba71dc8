// Speed of GPTQ on one layer, phase by phase, beside what LibTorch's BLAS does on one thread. All
// numbers of a size come from one run with interleaved repeats; the minimum of each is kept. FLOP
// are counted as reference implementations count them: n d^2 for the Gram (one triangle), d^3 / 3
// for the factor, m d^2 for the loop. "Quantize" is everything after the Gram, "with baselines" the
// same with rtn_loss and output_energy, which the published form does not compute: m d^2 each.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

struct Size {
  int64_t rows, cols;
};

struct Arguments {
  bool quick = false;
  int repeats = 5;
  int threads = 1;
};

std::vector<float> Gaussian(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

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

[[noreturn]] void Fail(std::string_view what, const absl::Status& status) {
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(what.size()), what.data(),
               status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T OrFail(absl::StatusOr<T> value, std::string_view what) {
  if (!value.ok()) Fail(what, value.status());
  return *std::move(value);
}

// On one thread its own CPU time, which other work on the machine disturbs less; else wall time.
double Now(bool wall) {
  timespec now;
  clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Minimum {
 public:
  void Time(bool wall, const std::function<void()>& work) {
    const double begin = Now(wall);
    work();
    seconds_ = std::min(seconds_, Now(wall) - begin);
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

struct Row {
  Size size;
  Minimum gram, factor, loop, quantize, baselines;
  Minimum gemm, dpotrf, published;
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
    OrFail(internal::RunGptq(view(), grid_, order_, factor, codes_.data(), context_), "loop");
  }

  void Quantize(bool baselines) {
    const QuantizerSpec spec{.baselines = baselines};
    const QuantizedWeight result =
        OrFail(ptqwatch::Quantize(view(), &statistics_, spec, context_), "Quantize");
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

// The best rates seen in the run.
struct Rates {
  double sgemm = 0;
  double dgemm = 0;
  Minimum gemm, double_gemm;

  void Measure() {
#ifdef PTQWATCH_BENCH_WITH_TORCH
    constexpr double kFlop = 2.0 * kGemmSize * kGemmSize * kGemmSize;
    gemm.Time(false, [] { Sgemm(kGemmSize); });
    double_gemm.Time(false, [] { Dgemm(kGemmSize); });
    sgemm = kFlop / gemm.seconds();
    dgemm = kFlop / double_gemm.seconds();
#endif
  }
};

Row Measure(Size size, const Arguments& arguments, Rates* rates) {
  Row row;
  row.size = size;
  const bool wall = arguments.threads > 1;
  Layer layer(size, arguments.threads);
  const internal::UpperFactor factor = layer.Factor();
#ifdef PTQWATCH_BENCH_WITH_TORCH
  QuantizePeers peers(layer.inputs(), layer.weight(), layer.Hessian(), kTokens, size.rows,
                      size.cols);
#endif
  for (int i = 0; i < arguments.repeats; ++i) {
    rates->Measure();
    row.gram.Time(wall, [&] { layer.Gram(); });
    row.factor.Time(wall, [&] { layer.Factor(); });
    row.loop.Time(wall, [&] { layer.Loop(factor); });
    row.quantize.Time(wall, [&] { layer.Quantize(false); });
    row.baselines.Time(wall, [&] { layer.Quantize(true); });
#ifdef PTQWATCH_BENCH_WITH_TORCH
    peers.RestoreFactorInput();
    row.dpotrf.Time(false, [&] { peers.Dpotrf(); });
    row.gemm.Time(false, [&] { peers.GramGemm(); });
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

void Print(const std::vector<Row>& rows, const Rates& rates) {
  const bool peers = rates.sgemm > 0;
  if (peers) {
    std::printf("SGEMM %.1f GFLOP/s, DGEMM %.1f GFLOP/s (%lld^3)\n\n", 1e-9 * rates.sgemm,
                1e-9 * rates.dgemm, static_cast<long long>(kGemmSize));
  }
  std::printf("milliseconds | Gram | factor | loop | Quantize | with baselines |");
  if (peers) {
    std::printf(
        " X^T X by GEMM | dpotrf | published | GEMM / Gram | factor / dpotrf | loop / SGEMM rate |"
        " Quantize / (dpotrf + updates) | with baselines | published / Quantize | with baselines "
        "|");
  }
  std::printf("\n");
  for (const Row& row : rows) {
    const double d = static_cast<double>(row.size.cols);
    const double updates = static_cast<double>(row.size.rows) * d * d;
    const double quantize = row.quantize.seconds();
    const double baselines = row.baselines.seconds();
    std::printf("%lldx%lld | %s | %s | %s | %s | %s |", static_cast<long long>(row.size.rows),
                static_cast<long long>(row.size.cols), Ms(row.gram.seconds()).c_str(),
                Ms(row.factor.seconds()).c_str(), Ms(row.loop.seconds()).c_str(),
                Ms(quantize).c_str(), Ms(baselines).c_str());
    if (peers) {
      std::printf(" %s | %s | %s | %.2f | %.2f | %.0f %% | %.2f | %.2f | %.2f | %.2f |",
                  Ms(row.gemm.seconds()).c_str(), Ms(row.dpotrf.seconds()).c_str(),
                  Ms(row.published.seconds()).c_str(), row.gemm.seconds() / row.gram.seconds(),
                  row.factor.seconds() / row.dpotrf.seconds(),
                  100 * updates / row.loop.seconds() / rates.sgemm,
                  quantize / (row.dpotrf.seconds() + updates / rates.sgemm),
                  baselines / (row.dpotrf.seconds() + updates / rates.sgemm),
                  row.published.seconds() / quantize, row.published.seconds() / baselines);
    }
    std::printf("\n");
  }
}

// Positive numbers only; exits with the usage otherwise.
Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (name == "--quick") {
      arguments.quick = true;
    } else if (name == "--repeats" && value > 0) {
      arguments.repeats = value;
      ++i;
    } else if (name == "--threads" && value > 0) {
      arguments.threads = value;
      ++i;
    } else {
      std::fprintf(stderr, "usage: %s [--quick] [--repeats N] [--threads N]\n", argv[0]);
      std::exit(2);
    }
  }
  return arguments;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  std::vector<Size> sizes = {{1024, 1024}, {4096, 1024}, {2048, 2048}};
  if (!arguments.quick) sizes.push_back({4096, 4096});
  std::printf(
      "4 bits, group 128, symmetric, static act-order, %lld tokens, %d thread(s) for "
      "ptqwatch, 1 for LibTorch, minima of %d interleaved repeats of %s time\n",
      static_cast<long long>(kTokens), arguments.threads, arguments.repeats,
      arguments.threads > 1 ? "wall" : "CPU");
  Rates rates;
  std::vector<Row> rows;
  for (Size size : sizes) rows.push_back(Measure(size, arguments, &rates));
  Print(rows, rates);
  return 0;
}

}  // namespace
}  // namespace ptqwatch::benchmarks

int main(int argc, char** argv) { return ptqwatch::benchmarks::Main(argc, argv); }
