// Quantizes the tensor "weight" of a safetensors file, with the tensor "inputs" where there is one,
// and writes codes, scale, zero and dequantized to another. Prints the least CPU seconds of Gram
// and of Quantize over the repeats. For comparisons with other programs: compare_quantizers.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "ptqwatch/offline/safetensors.h"
#include "ptqwatch/quantizer.h"

namespace {

using namespace ptqwatch;  // NOLINT

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Flags {
  std::string in;
  std::string out;
  std::string method = "gptq";
  std::string order = "act";
  std::string format = "int";
  std::string scale_rule = "even";
  bool asymmetric = false;
  int repeats = 3;
  int threads = 1;
  QuantizerSpec spec;
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_layer: %s\n", std::string(status.message()).c_str());
  return 1;
}

template <typename T>
TensorSource Tensor(const char* name, TensorDtype dtype, std::vector<int64_t> shape,
                    const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return MakeTensorSource(name, dtype, std::move(shape),
                          std::string(bytes, values.size() * sizeof(T)));
}

absl::Status Save(const std::string& path, MatrixView weight, const QuantizedWeight& result) {
  const auto flat = [](const std::vector<float>& values) {
    return std::vector<int64_t>{static_cast<int64_t>(values.size())};
  };
  return WriteSafetensors(
      path,
      {Tensor("codes", TensorDtype::kU8, {weight.rows, weight.cols}, result.codes),
       Tensor("scale", TensorDtype::kF32, flat(result.scale), result.scale),
       Tensor("zero", TensorDtype::kF32, flat(result.zero), result.zero),
       Tensor("dequantized", TensorDtype::kF32, {weight.rows, weight.cols}, result.dequantized)},
      {{"status", std::string(ToString(result.status))},
       {"tensor_scale", std::to_string(result.tensor_scale)}});
}

int Run(const Flags& flags) {
  const auto file = SafetensorsFile::Open(flags.in);
  if (!file.ok()) return Fail(file.status());
  const auto values = file->ReadFloats("weight");
  if (!values.ok()) return Fail(values.status());
  const TensorInfo& shape = *file->Find("weight");
  if (shape.shape.size() != 2) return Fail(absl::InvalidArgumentError("weight is not a matrix"));
  const MatrixView weight{.data = values->data(), .rows = shape.shape[0], .cols = shape.shape[1]};
  std::vector<float> x;
  if (file->Find("inputs") != nullptr) {
    auto read = file->ReadFloats("inputs");
    if (!read.ok()) return Fail(read.status());
    x = *std::move(read);
  }

  double gram_seconds = std::numeric_limits<double>::infinity();
  double quantize_seconds = gram_seconds;
  for (int repeat = 0; repeat < flags.repeats; ++repeat) {
    ExecutionContext context;
    context.threads = flags.threads;
    const double start = CpuSeconds();
    GramStatistics statistics;
    if (!x.empty()) {
      GramAccumulator gram(weight.cols);
      const int64_t tokens = static_cast<int64_t>(x.size()) / weight.cols;
      const absl::Status added =
          gram.Add({.data = x.data(), .rows = tokens, .cols = weight.cols}, context);
      if (!added.ok()) return Fail(added);
      statistics = gram.Take();
    }
    const double middle = CpuSeconds();
    const auto result = Quantize(weight, x.empty() ? nullptr : &statistics, flags.spec, context);
    const double end = CpuSeconds();
    if (!result.ok()) return Fail(result.status());
    gram_seconds = std::min(gram_seconds, middle - start);
    quantize_seconds = std::min(quantize_seconds, end - middle);
    if (repeat == 0) {
      if (result->codes.empty()) return Fail(absl::InternalError(result->status_detail));
      if (absl::Status saved = Save(flags.out, weight, *result); !saved.ok()) return Fail(saved);
    }
  }
  std::printf("gram seconds %.6f\nquantize seconds %.6f\n", gram_seconds, quantize_seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  flags.spec.min_tokens_ratio = 0;
  CLI::App app("Times the quantization of one layer.");
  app.add_option("IN", flags.in)->required();
  app.add_option("OUT", flags.out)->required();
  app.add_option("--method", flags.method);
  app.add_option("--bits", flags.spec.bits);
  app.add_option("--group-size", flags.spec.group_size);
  app.add_option("--order", flags.order)->check(CLI::IsMember({"act", "none"}));
  app.add_option("--format", flags.format);
  app.add_option("--scale-rule", flags.scale_rule);
  app.add_option("--group-rows", flags.spec.group_rows);
  app.add_option("--rotation", flags.spec.rotation);
  app.add_option("--outlier-threshold", flags.spec.outlier_threshold);
  app.add_flag("--asymmetric", flags.asymmetric);
  app.add_option("--repeats", flags.repeats)->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const auto method = ParseQuantizationMethod(flags.method);
  if (!method.ok()) return Fail(method.status());
  flags.spec.method = *method;
  const auto format = ParseQuantizationFormat(flags.format);
  if (!format.ok()) return Fail(format.status());
  flags.spec.format = *format;
  const auto rule = ParseScaleRule(flags.scale_rule);
  if (!rule.ok()) return Fail(rule.status());
  flags.spec.scale_rule = *rule;
  flags.spec.symmetric = !flags.asymmetric;
  flags.spec.order =
      flags.order == "act" ? QuantizationOrder::kStaticAct : QuantizationOrder::kNone;
  return Run(flags);
}
