#include "golden/golden_case.h"

#include <utility>
#include <vector>

#include "base/strings.h"
#include "golden/golden_compare.h"
#include "golden/golden_file.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::testing {
namespace {

using internal::StrCat;

constexpr double kCodesShare = 0.003;    // of a gptq or awq file's codes that may differ
constexpr double kDampTolerance = 1e-5;  // a mean of float32 sums
constexpr double kSquaredErrorTolerance = 1e-6;
constexpr double kScaleTolerance = 1e-6;  // awq's

// The contents of a file of a method with a grid.
struct Case {
  GoldenMatrix weight;
  QuantizerSpec spec;
  std::vector<int32_t> codes;
  std::vector<float> scale;
  std::vector<float> zero;
  std::vector<float> dequantized;
};

absl::StatusOr<Case> ReadCase(const GoldenFile& file, QuantizationMethod method) {
  absl::StatusOr<GoldenMatrix> weight = ReadMatrix(file, "weight");
  if (!weight.ok()) return weight.status();
  Case c;
  c.weight = *std::move(weight);
  c.spec.method = method;
  c.spec.min_tokens_ratio = 0;  // the definition has no such rule
  absl::Status status;
  Get(file.Integer("bits"), &c.spec.bits, &status);
  Get(file.Integer("group_size"), &c.spec.group_size, &status);
  Get(file.Flag("symmetric"), &c.spec.symmetric, &status);
  if (!status.ok()) return status;
  if (status = Validate(c.spec); !status.ok()) return absl::DataLossError(status.message());
  const int64_t rows = c.weight.rows;
  const int64_t cols = c.weight.cols;
  const int64_t group = c.spec.group_size < 0 ? cols : c.spec.group_size;
  const int64_t groups = (cols + group - 1) / group;
  Get(file.Int32s("codes", {rows, cols}), &c.codes, &status);
  Get(file.Floats("scale", {rows, groups}), &c.scale, &status);
  Get(file.Floats("zero", {rows, groups}), &c.zero, &status);
  Get(file.Floats("dequantized", {rows, cols}), &c.dequantized, &status);
  if (!status.ok()) return status;
  return c;
}

void ExpectOk(const QuantizedWeight& got, GoldenResult* result) {
  if (got.status != LayerStatus::kOk) {
    Fail(StrCat("status ", ToString(got.status), " ", got.status_detail), result);
  }
}

}  // namespace

absl::StatusOr<GoldenResult> CheckGptq(const GoldenFile& file) {
  absl::StatusOr<Case> c = ReadCase(file, QuantizationMethod::kGptq);
  if (!c.ok()) return c.status();
  std::string order_name;
  std::vector<int64_t> order;
  double damp_value = 0;
  double loss = 0;
  double loss_damped = 0;
  double rtn_loss = 0;
  absl::Status status;
  Get(file.Text("order"), &order_name, &status);
  Get(file.Int64s("order", {c->weight.cols}), &order, &status);
  Get(file.Number("damp"), &c->spec.damp, &status);
  Get(file.Number("damp_value"), &damp_value, &status);
  Get(file.Number("loss"), &loss, &status);
  Get(file.Number("loss_damped"), &loss_damped, &status);
  Get(file.Number("rtn_loss"), &rtn_loss, &status);
  if (status.ok() && order_name != "act" && order_name != "none") {
    status = absl::DataLossError(StrCat("metadata 'order' is '", order_name, "'"));
  }
  if (!status.ok()) return status;
  c->spec.order = order_name == "act" ? QuantizationOrder::kStaticAct : QuantizationOrder::kNone;

  ExecutionContext context;
  absl::StatusOr<GramStatistics> statistics = ReadStatistics(file, c->weight.cols, context);
  if (!statistics.ok()) return statistics.status();
  absl::StatusOr<QuantizedWeight> got = Quantize(c->weight.view(), &*statistics, c->spec, context);
  if (!got.ok()) return got.status();

  GoldenResult result;
  ExpectOk(*got, &result);
  CompareCodes(*got, c->codes, c->dequantized, kCodesShare, 0, &result);
  CompareEqual("scale", got->scale, c->scale, &result);
  CompareEqual("zero", got->zero, c->zero, &result);
  CompareEqual("order", got->order, order, &result);
  CompareNumber("damp_value", got->damp_value, damp_value, kDampTolerance, &result);
  CompareLoss("loss", got->loss, loss, &result);
  CompareLoss("loss_damped", got->loss_damped, loss_damped, &result);
  CompareLoss("rtn_loss", got->rtn_loss, rtn_loss, &result);
  return result;
}

absl::StatusOr<GoldenResult> CheckRtn(const GoldenFile& file) {
  absl::StatusOr<Case> c = ReadCase(file, QuantizationMethod::kRtn);
  if (!c.ok()) return c.status();
  absl::StatusOr<double> squared_error = file.Number("sum_squared_error");
  if (!squared_error.ok()) return squared_error.status();

  ExecutionContext context;
  absl::StatusOr<QuantizedWeight> got = Quantize(c->weight.view(), nullptr, c->spec, context);
  if (!got.ok()) return got.status();

  GoldenResult result;
  ExpectOk(*got, &result);
  CompareCodes(*got, c->codes, c->dequantized, 0, 0, &result);
  CompareEqual("scale", got->scale, c->scale, &result);
  CompareEqual("zero", got->zero, c->zero, &result);
  CompareEqual("dequantized", got->dequantized, c->dequantized, &result);
  const double sum = SumSquaredError(c->weight.values, got->dequantized);
  CompareNumber("sum_squared_error", sum, *squared_error, kSquaredErrorTolerance, &result);
  result.loss_error = RelativeError(sum, *squared_error);
  return result;
}

absl::StatusOr<GoldenResult> CheckAwq(const GoldenFile& file) {
  absl::StatusOr<Case> c = ReadCase(file, QuantizationMethod::kAwq);
  if (!c.ok()) return c.status();
  const int64_t cols = c->weight.cols;
  int steps = 0;
  double ratio = 0;
  double loss = 0;
  double rtn_loss = 0;
  std::vector<double> mean_abs;
  std::vector<double> losses;
  std::vector<float> channel_scale;
  absl::Status status;
  Get(file.Integer("steps"), &steps, &status);
  Get(file.Number("ratio"), &ratio, &status);
  Get(file.Number("loss"), &loss, &status);
  Get(file.Number("rtn_loss"), &rtn_loss, &status);
  Get(file.Doubles("mean_abs", {cols}), &mean_abs, &status);
  Get(file.Doubles("losses", {20}), &losses, &status);
  Get(file.Floats("channel_scale", {cols}), &channel_scale, &status);
  if (status.ok() && steps != 20) {
    status = absl::DataLossError(StrCat("metadata 'steps' is ", steps));
  }
  if (!status.ok()) return status;

  ExecutionContext context;
  absl::StatusOr<GramStatistics> statistics = ReadStatistics(file, cols, context);
  if (!statistics.ok()) return statistics.status();
  absl::StatusOr<QuantizedWeight> got = Quantize(c->weight.view(), &*statistics, c->spec, context);
  if (!got.ok()) return got.status();

  GoldenResult result;
  ExpectOk(*got, &result);
  std::vector<double> got_mean(statistics->abs_sum);
  for (double& value : got_mean) value /= static_cast<double>(statistics->tokens);
  CompareEach("mean_abs", got_mean, mean_abs, kScaleTolerance, &result);
  if (SameSize("losses", got->search_losses, losses, &result)) {
    for (size_t i = 0; i < losses.size(); ++i) {
      CompareLoss(StrCat("losses[", i, "]"), got->search_losses[i], losses[i], &result);
    }
  }
  CompareNumber("ratio", got->channel_scale_ratio, ratio, 1e-12, &result);
  CompareEach("channel_scale", got->channel_scale, channel_scale, kScaleTolerance, &result);
  CompareEach("scale", got->scale, c->scale, kScaleTolerance, &result);
  CompareCodes(*got, c->codes, c->dequantized, kCodesShare, 4 * kScaleTolerance, &result);
  CompareLoss("loss", got->loss, loss, &result);
  CompareLoss("rtn_loss", got->rtn_loss, rtn_loss, &result);
  return result;
}

}  // namespace ptqwatch::testing
