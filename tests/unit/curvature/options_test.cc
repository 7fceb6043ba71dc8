#include <gmock/gmock.h>

#include "ptqwatch/curvature.h"

namespace ptqwatch {
namespace {

TEST(CurvatureOptions, ValidateNamesFieldAndValue) {
  const auto message = [](auto change) {
    CurvatureOptions options;
    change(options);
    return std::string(Validate(options).message());
  };
  using ::testing::HasSubstr;
  EXPECT_TRUE(Validate(CurvatureOptions{}).ok());
  EXPECT_THAT(message([](auto& o) { o.eigenvalue_residual_ratio = 0; }),
              HasSubstr("curvature.eigenvalue_residual_ratio = 0: must be positive"));
  EXPECT_THAT(message([](auto& o) { o.eigenvalue_residual_ratio = NAN; }), HasSubstr("nan"));
  EXPECT_THAT(message([](auto& o) { o.max_eigenvalue_products = 0; }),
              HasSubstr("curvature.max_eigenvalue_products = 0"));
  EXPECT_THAT(message([](auto& o) { o.trace_relative_stderr = -1; }),
              HasSubstr("curvature.trace_relative_stderr = -1"));
  EXPECT_THAT(message([](auto& o) { o.max_vector_bytes = -1; }),
              HasSubstr("curvature.max_vector_bytes = -1: must be 0 or more"));
  EXPECT_THAT(message([](auto& o) { o.micro_batch = -2; }),
              HasSubstr("curvature.micro_batch = -2"));
  EXPECT_THAT(message([](auto& o) { o.top_eigenvalues = 0; }),
              HasSubstr("curvature.top_eigenvalues = 0"));
  EXPECT_THAT(message([](auto& o) {
                o.error_scales = {1, INFINITY};
              }),
              HasSubstr("curvature.error_scales = inf: must be finite"));
  EXPECT_THAT(message([](auto& o) { o.scope = CurvatureScope::kNamedParameters; }),
              HasSubstr("named_parameters needs globs"));
  EXPECT_THAT(message([](auto& o) { o.parameters = {"*.up.weight"}; }),
              HasSubstr("\"*.up.weight\""));
  EXPECT_THAT(message([](auto& o) { o.max_graph_bytes = -1; }),
              HasSubstr("curvature.max_graph_bytes = -1: must be 0 or more"));
  EXPECT_THAT(message([](auto& o) { o.max_trace_probes = 7; }),
              HasSubstr("curvature.max_trace_probes = 7: must be at least 8"));
}

TEST(HessianMode, NamesReadBack) {
  for (HessianMode mode :
       {HessianMode::kAuto, HessianMode::kRetainedGraph, HessianMode::kRecomputedGraph,
        HessianMode::kFiniteDifference, HessianMode::kGaussNewton}) {
    EXPECT_EQ(*ParseHessianMode(ToString(mode)), mode);
  }
  EXPECT_FALSE(ParseHessianMode("exact").ok());
}

}  // namespace
}  // namespace ptqwatch
