// Whatever shape, spec and values come in, Quantize refuses them or gives a result that keeps the
// contract in quantizer.h, the same bits with any number of threads, as a float64 computation by
// the definition has them, and PackWeight keeps them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fuzz/byte_reader.h"
#include "fuzz/definition.h"
#include "fuzz/fuzz_target.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/number_format.h"
#include "support/unpack_weight.h"

namespace ptqwatch::fuzz {
namespace {

constexpr int kMaxRows = 33;
constexpr int kMaxCols = 72;
constexpr int kMaxTokens = 60;

struct Problem {
  QuantizerSpec spec;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> weight;
  GramStatistics statistics;
  bool has_statistics = false;
  bool of_inputs = false;  // the statistics
};

// Ordinary numbers, and now and then one of the awkward ones. The fuzzer's bytes choose `mood`;
// after their end, a counter does.
float TakeFloat(ByteReader& bytes, int mood, uint32_t* counter) {
  *counter = *counter * 1664525u + 1013904223u;
  const uint8_t byte = static_cast<uint8_t>(bytes.Byte() ^ (*counter >> 24));
  const float ordinary = static_cast<float>(byte - 128) / 37.0f;
  if (mood == 0 || byte % 16 != 5) return mood == 3 ? std::fabs(ordinary) : ordinary;
  switch (bytes.UpTo(9)) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return 1e30f;
    case 3:
      return -3e38f;
    case 4:
      return 1e-42f;
    case 5:
      return 7e4f;
    case 6:
      return mood == 2 ? std::numeric_limits<float>::quiet_NaN() : 1000.0f;
    case 7:
      return mood == 2 ? -std::numeric_limits<float>::infinity() : 1e-8f;
    case 8:
      return bytes.Raw<float>();
    default:
      return 6.0f;
  }
}

std::vector<float> TakeFloats(ByteReader& bytes, int64_t count) {
  const int mood = bytes.UpTo(4);
  uint32_t counter = bytes.Byte();
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = mood == 4 ? 0.0f : TakeFloat(bytes, mood, &counter);
  return values;
}

double TakeReal(ByteReader& bytes, double usual) {
  switch (bytes.UpTo(7)) {
    case 0:
      return 0;
    case 1:
      return bytes.Raw<double>();
    case 2:
      return 1e-12;
    case 3:
      return 10;
    default:
      return usual;
  }
}

QuantizerSpec TakeSpec(ByteReader& bytes) {
  constexpr int kBits[] = {2, 3, 4, 8, 4, 5, 6, 9};
  constexpr int kGroups[] = {-1, 1, 3, 8, 32, 128, 0, std::numeric_limits<int>::max()};
  QuantizerSpec spec;
  spec.method = static_cast<QuantizationMethod>(bytes.UpTo(5));
  spec.bits = kBits[bytes.UpTo(7)];
  spec.group_size = kGroups[bytes.UpTo(7)];
  spec.symmetric = bytes.UpTo(1) == 0;
  spec.order = static_cast<QuantizationOrder>(bytes.UpTo(1));
  spec.damp = TakeReal(bytes, 0.01);
  spec.min_tokens_ratio = TakeReal(bytes, 0);
  spec.scale_dtype = static_cast<ScaleDtype>(bytes.UpTo(2));
  spec.clip = static_cast<ClipSearch>(bytes.UpTo(3));
  const bool by_rule = spec.clip == ClipSearch::kPercentile || spec.clip == ClipSearch::kStd;
  if (by_rule) spec.clip_value = TakeReal(bytes, 2);
  spec.narrow_range = bytes.UpTo(3) == 0;
  spec.round_scale_last = bytes.UpTo(7) == 0;
  if (bytes.UpTo(3) == 0) spec.min_scale = TakeReal(bytes, 0.01);
  spec.outlier_threshold = TakeReal(bytes, 6);
  // Most inputs should get past Validate.
  if ((by_rule || spec.narrow_range) && bytes.UpTo(7) != 0) {
    spec.symmetric = true;
    spec.method = static_cast<QuantizationMethod>(bytes.UpTo(2));
  }
  if (bytes.UpTo(3) == 0) {
    spec.format = static_cast<QuantizationFormat>(bytes.UpTo(5));
    if (const auto format_bits = FixedBits(spec.format)) spec.bits = *format_bits;
    if (bytes.UpTo(7) != 0) {
      spec.method = static_cast<QuantizationMethod>(bytes.UpTo(1));
      spec.clip = ClipSearch::kNone;
      spec.symmetric = true;
    }
  }
  if (spec.method == QuantizationMethod::kLlmInt8 && bytes.UpTo(7) != 0) spec.bits = 8;
  if (spec.method == QuantizationMethod::kNf4 && bytes.UpTo(7) != 0) spec.bits = 4;
  return spec;
}

enum class StatisticsKind { kOfInputs, kNone, kInvented };

// Statistics of inputs, or numbers that no inputs have.
void TakeStatistics(ByteReader& bytes, StatisticsKind kind, int64_t tokens, Problem* problem) {
  if (kind == StatisticsKind::kNone) return;
  problem->has_statistics = true;
  if (kind == StatisticsKind::kInvented) {
    GramStatistics& statistics = problem->statistics;
    statistics.inputs = problem->cols;
    statistics.tokens = tokens;
    for (const float value : TakeFloats(bytes, problem->cols * problem->cols)) {
      statistics.sum.push_back(value);
    }
    for (const float value : TakeFloats(bytes, problem->cols)) {
      statistics.abs_sum.push_back(value);
      statistics.abs_max.push_back(value);
    }
    return;
  }
  ExecutionContext context;
  GramAccumulator gram(problem->cols);
  const std::vector<float> x = TakeFloats(bytes, tokens * problem->cols);
  Require(gram.Add({.data = x.data(), .rows = tokens, .cols = problem->cols}, context).ok(),
          "inputs can be added");
  problem->statistics = gram.Take();
  Require(problem->statistics.tokens + problem->statistics.skipped_rows == tokens,
          "every row is counted");
  problem->of_inputs = true;
}

Problem TakeProblem(ByteReader& bytes) {
  Problem problem;
  problem.spec = TakeSpec(bytes);
  problem.rows = bytes.UpTo(kMaxRows);
  problem.cols = bytes.UpTo(kMaxCols);
  // Read before the weights, which use up what there is.
  constexpr StatisticsKind kKinds[] = {StatisticsKind::kOfInputs, StatisticsKind::kOfInputs,
                                       StatisticsKind::kInvented, StatisticsKind::kNone};
  const StatisticsKind kind = kKinds[bytes.UpTo(3)];
  const int64_t tokens = bytes.UpTo(kMaxTokens);
  problem.weight = TakeFloats(bytes, problem.rows * problem.cols);
  TakeStatistics(bytes, kind, tokens, &problem);
  return problem;
}

absl::StatusOr<QuantizedWeight> Run(const Problem& problem, int threads) {
  ExecutionContext context;
  context.threads = threads;
  return Quantize({.data = problem.weight.data(), .rows = problem.rows, .cols = problem.cols},
                  problem.has_statistics ? &problem.statistics : nullptr, problem.spec, context);
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

bool SameBits(std::optional<double> a, std::optional<double> b) {
  return a.has_value() == b.has_value() && (!a || std::memcmp(&*a, &*b, sizeof(double)) == 0);
}

bool SameBits(const QuantizedWeight& a, const QuantizedWeight& b) {
  return a.status == b.status && a.status_detail == b.status_detail && SameBits(a.codes, b.codes) &&
         SameBits(a.scale, b.scale) && SameBits(a.zero, b.zero) &&
         SameBits(a.dequantized, b.dequantized) && SameBits(a.order, b.order) &&
         SameBits(a.loss, b.loss) && SameBits(a.loss_damped, b.loss_damped) &&
         SameBits(a.rtn_loss, b.rtn_loss) && SameBits(a.output_energy, b.output_energy) &&
         SameBits(a.channel_scale, b.channel_scale) && SameBits(a.search_losses, b.search_losses) &&
         SameBits(a.outlier_columns, b.outlier_columns);
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

bool IsLoss(std::optional<double> loss) { return !loss || (std::isfinite(*loss) && *loss >= 0); }

void CheckSizes(const Problem& problem, const QuantizedWeight& weight, const std::string& what) {
  const size_t count = static_cast<size_t>(problem.rows * problem.cols);
  Require(weight.codes.size() == count, "a code for each weight", what);
  Require(weight.dequantized.size() == count, "a decoded weight for each", what);
  size_t scales = static_cast<size_t>(problem.rows);
  size_t zeros = scales;
  if (problem.spec.method == QuantizationMethod::kNf4) {
    scales = (count + 63) / 64;
    zeros = 0;
  } else if (problem.spec.method != QuantizationMethod::kLlmInt8) {
    const int64_t size = internal::GroupSizeOf(problem.spec, problem.cols);
    scales *= static_cast<size_t>((problem.cols + size - 1) / size);
    zeros = scales;
  } else if (weight.zero.empty()) {
    zeros = 0;
  }
  Require(weight.scale.size() == scales, "a scale for each group", what);
  Require(weight.zero.size() == zeros || weight.zero.size() == scales, "a zero for each", what);
}

void CheckPacking(const Problem& problem, const QuantizedWeight& weight, const std::string& what) {
  for (const auto format : {CheckpointFormat::kCompressedTensors, CheckpointFormat::kGptqV2}) {
    const bool fits = CheckPackable(format, problem.spec, problem.rows, problem.cols).ok();
    const auto packed = PackWeight(format, problem.spec, problem.rows, problem.cols, weight);
    Require(packed.ok() == fits, "what is packable is packed",
            what + ": " + std::string(packed.status().message()));
    if (!fits || problem.spec.format != QuantizationFormat::kInt) continue;
    const auto unpacked = testing::UnpackWeight(format, problem.spec, *packed);
    Require(unpacked.ok(), "what is packed can be unpacked", what);
    Require(unpacked->codes == weight.codes && unpacked->dequantized == weight.dequantized,
            "packing loses nothing", what);
  }
}

void Check(const Problem& problem) {
  const absl::StatusOr<QuantizedWeight> result = Run(problem, 1);
  const absl::StatusOr<QuantizedWeight> threaded = Run(problem, 3);
  const std::string what = Describe(problem.spec) + " [" + std::to_string(problem.rows) + ", " +
                           std::to_string(problem.cols) + "]";
  Require(result.ok() == threaded.ok(), "threads change nothing", what);
  if (!Validate(problem.spec).ok()) {
    Require(!result.ok(), "invalid specs are refused", what);
  }
  if (!result.ok()) {
    Require(absl::IsInvalidArgument(result.status()), "only InvalidArgument can come of this",
            what + ": " + std::string(result.status().message()));
    return;
  }
  Require(SameBits(*result, *threaded), "the same bits with any number of threads", what);
  if (result->codes.empty()) {
    Require(
        result->status == LayerStatus::kNonFinite || result->status == LayerStatus::kUnsupported,
        "without codes the status says why", what);
    Require(result->dequantized.empty(), "no codes, no weights", what);
    return;
  }
  CheckSizes(problem, *result, what);
  const int bottom = problem.spec.narrow_range ? 1 : 0;
  const int top = (1 << problem.spec.bits) - 1;
  Require(std::all_of(result->codes.begin(), result->codes.end(),
                      [=](uint8_t code) { return code >= bottom && code <= top; }),
          "codes fit their bits", what);
  Require(AllFinite(result->scale) && AllFinite(result->zero), "grids are finite", what);
  Require(AllFinite(result->dequantized), "decoded weights are finite", what);
  Require(IsLoss(result->loss) && IsLoss(result->rtn_loss) && IsLoss(result->output_energy),
          "losses are finite and not negative", what);
  if (!problem.has_statistics || problem.of_inputs) {
    const std::string difference = DifferenceFromDefinition(
        {.data = problem.weight.data(), .rows = problem.rows, .cols = problem.cols},
        problem.has_statistics ? &problem.statistics : nullptr, problem.spec, *result);
    Require(difference.empty(), "the result is as defined", what + ": " + difference);
  }
  CheckPacking(problem, *result, what);
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (int method = 0; method < 5; ++method) {
    for (int bits = 0; bits < 4; ++bits) {
      for (int variant = 0; variant < 4; ++variant) {
        std::string seed;
        const auto add = [&seed](int byte) { seed += static_cast<char>(byte); };
        add(method);
        add(bits);
        add(variant + 3);                          // group size
        add((variant + 1) / 2 % 2);                // symmetric
        add(bits % 2);                             // order
        add(7);                                    // damp
        add(7);                                    // min_tokens_ratio
        add(variant % 3);                          // scale dtype
        add(variant == 1);                         // clip
        add(1);                                    // narrow_range
        add(1);                                    // round_scale_last
        add(1);                                    // min_scale
        add(7);                                    // outlier threshold
        add(method == 1 && variant == 3 ? 0 : 1);  // format
        if (method == 1 && variant == 3) {
          add(bits + 1);
          add(1);
          add(bits % 2);
        }
        if (method >= 3) add(1);
        add(variant == 2 ? 32 : 20 + variant);  // rows
        add(variant == 3 ? 23 : 64);            // columns
        add(variant);                           // kind of statistics
        add(80);                                // tokens
        add(variant);                           // mood of the weights
        for (int i = 0; i < 100; ++i) add(i * 91 + method);
        seeds.push_back(seed);
      }
    }
  }
  return seeds;
}

}  // namespace ptqwatch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ptqwatch::fuzz::ByteReader bytes(data, size);
  ptqwatch::fuzz::Check(ptqwatch::fuzz::TakeProblem(bytes));
  return 0;
}
