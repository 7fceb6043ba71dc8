#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch {
namespace options_test {

using ::testing::HasSubstr;

template <typename Options, typename Change>
std::string Refusal(Change change) {
  Options options;
  change(options);
  return std::string(Validate(options).message());
}

TEST(CurvatureOptions, ValidateNamesFieldAndValue) {
  const auto refusal = [](auto change) { return Refusal<CurvatureOptions>(change); };
  EXPECT_TRUE(Validate(CurvatureOptions{}).ok());
  EXPECT_THAT(refusal([](auto& o) { o.eigenvalue_residual_ratio = 0; }),
              HasSubstr("curvature.eigenvalue_residual_ratio = 0: must be positive"));
  EXPECT_THAT(refusal([](auto& o) { o.eigenvalue_residual_ratio = NAN; }), HasSubstr("nan"));
  EXPECT_THAT(refusal([](auto& o) { o.trace_relative_stderr = -1; }),
              HasSubstr("curvature.trace_relative_stderr = -1"));
  EXPECT_THAT(refusal([](auto& o) { o.top_eigenvalues = 0; }),
              HasSubstr("curvature.top_eigenvalues = 0"));
  EXPECT_THAT(refusal([](auto& o) { o.scope = CurvatureScope::kNamedParameters; }),
              HasSubstr("named_parameters needs globs"));
  EXPECT_THAT(refusal([](auto& o) { o.parameters = {"*.up.weight"}; }),
              HasSubstr("\"*.up.weight\""));
}

TEST(CurvatureEngineOptions, ValidateNamesFieldAndValue) {
  const auto refusal = [](auto change) { return Refusal<CurvatureEngineOptions>(change); };
  EXPECT_TRUE(Validate(CurvatureEngineOptions{}).ok());
  EXPECT_THAT(refusal([](auto& o) { o.max_eigenvalue_products = 0; }),
              HasSubstr("curvature.max_eigenvalue_products = 0"));
  EXPECT_THAT(refusal([](auto& o) { o.max_vector_bytes = -1; }),
              HasSubstr("curvature.max_vector_bytes = -1: must be 0 or more"));
  EXPECT_THAT(refusal([](auto& o) { o.micro_batch = -2; }),
              HasSubstr("curvature.micro_batch = -2"));
  EXPECT_THAT(refusal([](auto& o) { o.max_graph_bytes = -1; }),
              HasSubstr("curvature.max_graph_bytes = -1: must be 0 or more"));
  EXPECT_THAT(refusal([](auto& o) { o.max_trace_probes = 7; }),
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

}  // namespace options_test
}  // namespace ptqwatch
