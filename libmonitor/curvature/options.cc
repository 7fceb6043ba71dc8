#include <cmath>

#include "base/strings.h"
#include "ptqwatch/curvature.h"

namespace ptqwatch {
namespace {

constexpr int kLeastTraceProbes = 8;

absl::Status Invalid(std::string_view field, const std::string& value, std::string_view expected) {
  return absl::InvalidArgumentError(
      internal::StrCat("curvature.", field, " = ", value, ": must be ", expected));
}

}  // namespace

absl::Status Validate(const CurvatureOptions& options) {
  using internal::StrCat;
  const bool named = options.scope == CurvatureScope::kNamedParameters;
  if (named == options.parameters.empty()) {
    return absl::InvalidArgumentError(
        named ? "curvature.scope = named_parameters needs globs in curvature.parameters"
              : StrCat("curvature.parameters = {\"", options.parameters[0],
                       "\", ...}: only with curvature.scope = named_parameters, not ",
                       ToString(options.scope)));
  }
  if (options.max_graph_bytes < 0) {
    return Invalid("max_graph_bytes", StrCat(options.max_graph_bytes), "0 or more");
  }
  if (options.max_vector_bytes < 0) {
    return Invalid("max_vector_bytes", StrCat(options.max_vector_bytes), "0 or more");
  }
  if (options.micro_batch < 0) {
    return Invalid("micro_batch", StrCat(options.micro_batch), "0 or more");
  }
  if (options.top_eigenvalues < 1) {
    return Invalid("top_eigenvalues", StrCat(options.top_eigenvalues), "positive");
  }
  for (double scale : options.error_scales) {
    if (!std::isfinite(scale)) return Invalid("error_scales", StrCat(scale), "finite");
  }
  if (!(options.eigenvalue_residual_ratio > 0 &&
        std::isfinite(options.eigenvalue_residual_ratio))) {
    return Invalid("eigenvalue_residual_ratio", StrCat(options.eigenvalue_residual_ratio),
                   "positive");
  }
  if (options.max_eigenvalue_products <= 0) {
    return Invalid("max_eigenvalue_products", StrCat(options.max_eigenvalue_products), "positive");
  }
  if (!(options.trace_relative_stderr > 0 && std::isfinite(options.trace_relative_stderr))) {
    return Invalid("trace_relative_stderr", StrCat(options.trace_relative_stderr), "positive");
  }
  if (options.max_trace_probes < kLeastTraceProbes) {
    return Invalid("max_trace_probes", StrCat(options.max_trace_probes),
                   StrCat("at least ", kLeastTraceProbes));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch
