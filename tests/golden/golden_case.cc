#include "golden/golden_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "golden/safetensors_reader.h"
#include "ptqwatch/quantizer.h"
#include "report/str_cat.h"

namespace ptqwatch::testing {
namespace {

using internal::StrCat;

constexpr double kCodesTolerance = 0.003;  // share of a gptq file's codes that may differ
constexpr double kLossTolerance = 1e-3;
constexpr double kDampTolerance = 1e-5;  // a mean of float32 sums
constexpr double kSquaredErrorTolerance = 1e-6;

// Matrices are small; a header that promises more is not a golden file.
constexpr int64_t kMaxSide = 1 << 20;

// What both kinds of files hold.
struct Case {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t groups = 0;
  QuantizerSpec spec;
  std::vector<float> weight;
  std::vector<int32_t> codes;
  std::vector<float> scale;
  std::vector<float> zero;
  std::vector<float> dequantized;

  MatrixView view() const { return {.data = weight.data(), .rows = rows, .cols = cols}; }
};

// Sets `*out`, or keeps the first error in `*status`.
template <typename T, typename U>
void Get(absl::StatusOr<T> value, U* out, absl::Status* status) {
  if (!value.ok()) {
    status->Update(value.status());
  } else {
    *out = *std::move(value);
  }
}

absl::StatusOr<Case> ReadCase(const SafetensorsFile& file, QuantizationMethod method) {
  absl::StatusOr<std::vector<int64_t>> shape = file.Shape("weight");
  if (!shape.ok()) return shape.status();
  if (shape->size() != 2 || (*shape)[0] < 1 || (*shape)[1] < 1 || (*shape)[0] > kMaxSide ||
      (*shape)[1] > kMaxSide) {
    return absl::DataLossError("tensor 'weight' is not a matrix of a usable size");
  }
  Case c;
  c.rows = (*shape)[0];
  c.cols = (*shape)[1];
  c.spec.method = method;
  c.spec.min_tokens_ratio = 0;  // the definition has no such rule
  absl::Status status;
  Get(file.Integer("bits"), &c.spec.bits, &status);
  Get(file.Integer("group_size"), &c.spec.group_size, &status);
  Get(file.Flag("symmetric"), &c.spec.symmetric, &status);
  if (!status.ok()) return status;
  if (status = Validate(c.spec); !status.ok()) return absl::DataLossError(status.message());
  const int64_t group = c.spec.group_size < 0 ? c.cols : c.spec.group_size;
  c.groups = (c.cols + group - 1) / group;
  Get(file.Floats("weight", {c.rows, c.cols}), &c.weight, &status);
  Get(file.Int32s("codes", {c.rows, c.cols}), &c.codes, &status);
  Get(file.Floats("scale", {c.rows, c.groups}), &c.scale, &status);
  Get(file.Floats("zero", {c.rows, c.groups}), &c.zero, &status);
  Get(file.Floats("dequantized", {c.rows, c.cols}), &c.dequantized, &status);
  if (!status.ok()) return status;
  return c;
}

void Fail(const std::string& why, GoldenResult* result) {
  if (result->failure.empty()) result->failure = why;
}

double RelativeError(double value, double expected) {
  if (value == expected) return 0;
  if (expected == 0) return std::numeric_limits<double>::infinity();
  return std::abs(value - expected) / std::abs(expected);
}

// The first index where the two differ.
template <typename T>
std::optional<size_t> FirstDifference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return std::min(a.size(), b.size());
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin());
  if (at == a.end()) return std::nullopt;
  return static_cast<size_t>(at - a.begin());
}

template <typename T>
void CompareEqual(std::string_view name, const std::vector<T>& got, const std::vector<T>& wanted,
                  GoldenResult* result) {
  if (const std::optional<size_t> at = FirstDifference(got, wanted)) {
    Fail(*at < got.size() && *at < wanted.size()
             ? StrCat(name, " differs at entry ", *at, ": ", got[*at], " instead of ", wanted[*at])
             : StrCat(name, " has ", got.size(), " entries instead of ", wanted.size()),
         result);
  }
}

// Codes, and decoded values wherever the code is the expected one.
void CompareCodes(const Case& c, const QuantizedWeight& got, GoldenResult* result) {
  result->codes = static_cast<int64_t>(c.codes.size());
  if (got.codes.size() != c.codes.size() || got.dequantized.size() != c.codes.size()) {
    Fail(StrCat(got.codes.size(), " codes instead of ", c.codes.size(), " (status ",
                ToString(got.status), " ", got.status_detail, ")"),
         result);
    return;
  }
  for (size_t i = 0; i < c.codes.size(); ++i) {
    if (static_cast<int32_t>(got.codes[i]) != c.codes[i]) {
      ++result->codes_differ;
    } else if (got.dequantized[i] != c.dequantized[i]) {
      Fail(StrCat("dequantized differs at entry ", i, ": ", got.dequantized[i], " instead of ",
                  c.dequantized[i]),
           result);
    }
  }
}

void CompareNumber(std::string_view name, std::optional<double> got, double wanted,
                   double tolerance, GoldenResult* result) {
  if (!got.has_value()) return Fail(StrCat(name, " is missing"), result);
  const double error = RelativeError(*got, wanted);
  if (!(error <= tolerance)) {
    Fail(StrCat(name, " is ", *got, " instead of ", wanted, ", relative error ", error), result);
  }
}

void CompareLoss(std::string_view name, std::optional<double> got, double wanted,
                 GoldenResult* result) {
  CompareNumber(name, got, wanted, kLossTolerance, result);
  if (got.has_value()) {
    result->loss_error = std::max(result->loss_error, RelativeError(*got, wanted));
  }
}

absl::StatusOr<GramStatistics> ReadStatistics(ExecutionContext& context,
                                              const SafetensorsFile& file, int64_t cols) {
  if (!file.Has("inputs")) {
    absl::StatusOr<std::vector<double>> hessian = file.Doubles("hessian", {cols, cols});
    if (!hessian.ok()) return hessian.status();
    GramStatistics statistics;
    statistics.inputs = cols;
    statistics.tokens = 2;  // H = 2 / tokens * sum
    statistics.sum = *std::move(hessian);
    return statistics;
  }
  absl::StatusOr<std::vector<int64_t>> shape = file.Shape("inputs");
  if (!shape.ok()) return shape.status();
  if (shape->size() != 2) return absl::DataLossError("tensor 'inputs' is not a matrix");
  absl::StatusOr<std::vector<float>> inputs = file.Floats("inputs", {(*shape)[0], cols});
  if (!inputs.ok()) return inputs.status();
  GramAccumulator gram(cols);
  if (absl::Status status =
          gram.Add(context, {.data = inputs->data(), .rows = (*shape)[0], .cols = cols});
      !status.ok()) {
    return status;
  }
  return gram.Take();
}

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(path, ": ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<GoldenResult> CheckGptqFile(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Read(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<Case> c = ReadCase(*file, QuantizationMethod::kGptq);
  if (!c.ok()) return Named(path, c.status());
  std::string order_name;
  std::vector<int64_t> order;
  double damp_value = 0;
  double loss = 0;
  double loss_damped = 0;
  double rtn_loss = 0;
  absl::Status status;
  Get(file->Text("order"), &order_name, &status);
  Get(file->Int64s("order", {c->cols}), &order, &status);
  Get(file->Number("damp"), &c->spec.damp, &status);
  Get(file->Number("damp_value"), &damp_value, &status);
  Get(file->Number("loss"), &loss, &status);
  Get(file->Number("loss_damped"), &loss_damped, &status);
  Get(file->Number("rtn_loss"), &rtn_loss, &status);
  if (status.ok() && order_name != "act" && order_name != "none") {
    status = absl::DataLossError(StrCat("metadata 'order' is '", order_name, "'"));
  }
  if (!status.ok()) return Named(path, status);
  c->spec.order = order_name == "act" ? QuantizationOrder::kStaticAct : QuantizationOrder::kNone;

  ExecutionContext context = ExecutionContext::Standalone();
  absl::StatusOr<GramStatistics> statistics = ReadStatistics(context, *file, c->cols);
  if (!statistics.ok()) return Named(path, statistics.status());
  absl::StatusOr<QuantizedWeight> got = Quantize(context, c->view(), &*statistics, c->spec);
  if (!got.ok()) return Named(path, got.status());

  GoldenResult result;
  if (got->status != LayerStatus::kOk) {
    Fail(StrCat("status ", ToString(got->status), " ", got->status_detail), &result);
  }
  CompareCodes(*c, *got, &result);
  if (!(static_cast<double>(result.codes_differ) <
        kCodesTolerance * static_cast<double>(result.codes)) &&
      result.codes_differ > 0) {
    Fail(StrCat(result.codes_differ, " of ", result.codes, " codes differ"), &result);
  }
  CompareEqual("scale", got->scale, c->scale, &result);
  CompareEqual("zero", got->zero, c->zero, &result);
  CompareEqual("order", got->order, order, &result);
  CompareNumber("damp_value", got->damp_value, damp_value, kDampTolerance, &result);
  CompareLoss("loss", got->loss, loss, &result);
  CompareLoss("loss_damped", got->loss_damped, loss_damped, &result);
  CompareLoss("rtn_loss", got->rtn_loss, rtn_loss, &result);
  return result;
}

absl::StatusOr<GoldenResult> CheckRtnFile(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Read(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<Case> c = ReadCase(*file, QuantizationMethod::kRtn);
  if (!c.ok()) return Named(path, c.status());
  absl::StatusOr<double> squared_error = file->Number("sum_squared_error");
  if (!squared_error.ok()) return Named(path, squared_error.status());

  ExecutionContext context = ExecutionContext::Standalone();
  absl::StatusOr<QuantizedWeight> got = Quantize(context, c->view(), nullptr, c->spec);
  if (!got.ok()) return Named(path, got.status());

  GoldenResult result;
  CompareCodes(*c, *got, &result);
  if (result.codes_differ > 0) {
    Fail(StrCat(result.codes_differ, " of ", result.codes, " codes differ"), &result);
  }
  CompareEqual("scale", got->scale, c->scale, &result);
  CompareEqual("zero", got->zero, c->zero, &result);
  CompareEqual("dequantized", got->dequantized, c->dequantized, &result);
  double sum = 0;
  for (size_t i = 0; i < std::min(got->dequantized.size(), c->weight.size()); ++i) {
    const double error =
        static_cast<double>(c->weight[i]) - static_cast<double>(got->dequantized[i]);
    sum += error * error;
  }
  CompareNumber("sum_squared_error", sum, *squared_error, kSquaredErrorTolerance, &result);
  result.loss_error = RelativeError(sum, *squared_error);
  return result;
}

}  // namespace ptqwatch::testing
