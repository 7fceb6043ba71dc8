#include "ptqwatch/options.h"

#include <cmath>

#include "base/strings.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch {
namespace {

using internal::StrCat;

// Equal to HutchinsonOptions::min_probes.
constexpr int kMinTraceProbes = 8;

absl::Status Invalid(std::string_view field, const std::string& value, std::string_view expected) {
  return absl::InvalidArgumentError(
      StrCat("curvature.", field, " = ", value, ": must be ", expected));
}

bool IsPositive(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

absl::Status Validate(const CurvatureOptions& options) {
  const bool named = options.scope == CurvatureScope::kNamedParameters;
  if (named == options.parameters.empty()) {
    return absl::InvalidArgumentError(
        named ? "curvature.scope = named_parameters needs globs in curvature.parameters"
              : StrCat("curvature.parameters = {\"", options.parameters[0],
                       "\", ...}: only with curvature.scope = named_parameters, not ",
                       ToString(options.scope)));
  }
  if (options.top_eigenvalues < 1) {
    return Invalid("top_eigenvalues", StrCat(options.top_eigenvalues), "positive");
  }
  if (!IsPositive(options.eigenvalue_residual_ratio)) {
    return Invalid("eigenvalue_residual_ratio", StrCat(options.eigenvalue_residual_ratio),
                   "positive");
  }
  if (!IsPositive(options.trace_relative_stderr)) {
    return Invalid("trace_relative_stderr", StrCat(options.trace_relative_stderr), "positive");
  }
  return absl::OkStatus();
}

absl::Status Validate(const CurvatureEngineOptions& options) {
  if (options.max_graph_bytes < 0) {
    return Invalid("max_graph_bytes", StrCat(options.max_graph_bytes), "0 or more");
  }
  if (options.max_vector_bytes < 0) {
    return Invalid("max_vector_bytes", StrCat(options.max_vector_bytes), "0 or more");
  }
  if (options.micro_batch < 0) {
    return Invalid("micro_batch", StrCat(options.micro_batch), "0 or more");
  }
  if (options.max_eigenvalue_products <= 0) {
    return Invalid("max_eigenvalue_products", StrCat(options.max_eigenvalue_products), "positive");
  }
  if (options.max_trace_probes < kMinTraceProbes) {
    return Invalid("max_trace_probes", StrCat(options.max_trace_probes),
                   StrCat("at least ", kMinTraceProbes));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch
