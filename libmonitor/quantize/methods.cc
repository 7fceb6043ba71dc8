#include "quantize/methods.h"

#include <algorithm>
#include <vector>

#include "quantize/kernels/number_format.h"

namespace ptqwatch::internal {
namespace {

std::vector<const Method*>& MethodRows() {
  static auto* rows = new std::vector<const Method*>{&kRtnMethod, &kGptqMethod, &kAwqMethod,
                                                     &kLlmInt8Method, &kNf4Method};
  return *rows;
}

}  // namespace

const Method& MethodOf(QuantizationMethod method) {
  const auto index = static_cast<size_t>(method);
  return index < MethodRows().size() ? *MethodRows()[index] : kRtnMethod;
}

QuantizationMethod AddMethod(const MethodName& name, const Method& method) {
  MethodRows().push_back(&method);
  return AddMethodName(name);
}

double NeededTokens(const QuantizerSpec& spec, int64_t inputs) {
  const auto min_tokens = MethodOf(spec).min_tokens;
  return min_tokens == nullptr ? 0 : std::max(1.0, min_tokens(spec, inputs));
}

int64_t WorkingBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  // Codes and decoded weights. A rotation copies the weight and its statistics.
  return 5 * rows * cols + TracePanelBytes(rows, cols) + MethodOf(spec).bytes(rows, cols, spec) +
         FactorBytes(cols, spec) + (spec.rotation > 0 ? 4 * rows * cols + 8 * cols * cols : 0);
}

int64_t FactorBytes(int64_t cols, const QuantizerSpec& spec) {
  return MethodOf(spec).factor ? 6 * cols * cols : 0;
}

int64_t TracePanelBytes(int64_t rows, int64_t cols) {
  // A group of rows in both precisions.
  return 12 * std::min<int64_t>(rows, 1024) * cols;
}

int64_t GridBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  const int64_t group = GroupSizeOf(spec, cols);
  return 8 * rows * ((cols + group - 1) / group) + (spec.clip == ClipSearch::kMse ? 200 * group
                                                    : spec.clip == ClipSearch::kPercentile
                                                        ? 4 * group
                                                        : 0);
}

double RoundingFlops(double rows, double cols, const QuantizerSpec& spec) {
  return rows * cols * cols + BaselineFlops(rows, cols, spec) + 10 * rows * cols;
}

double BaselineFlops(double rows, double cols, const QuantizerSpec& spec) {
  return (spec.baselines ? 2 : 0) * rows * cols * cols;
}

}  // namespace ptqwatch::internal
