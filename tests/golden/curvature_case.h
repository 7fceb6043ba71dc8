#ifndef PTQWATCH_TESTS_GOLDEN_CURVATURE_CASE_H_
#define PTQWATCH_TESTS_GOLDEN_CURVATURE_CASE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::testing {

/// How far a curvature_* case is from its file; every error is relative.
struct CurvatureResult {
  std::string failure;  ///< the first value out of its tolerance; empty when all are within
  double gradient64 = 0;
  double product64 = 0;  ///< H v, exact, float64
  double trace64 = 0;    ///< from the products with all unit vectors
  double gradient32 = 0;
  double product32 = 0;            ///< H v, exact, float32
  double finite_difference32 = 0;  ///< H v, central difference, float32
  double lambda_max = 0;           ///< float32
  double lambda_min = 0;
  double hutchinson_sigmas = 0;  ///< distance from the trace over the true standard error
  int products = 0;              ///< that lambda_max took from a random start
};

/// Builds the model that the file describes, replicates it as a monitor does, and compares what the
/// curvature engine says with the file. Errors: the file is missing, damaged or inconsistent.
absl::StatusOr<CurvatureResult> CheckCurvatureFile(const std::string& path);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_GOLDEN_CURVATURE_CASE_H_
