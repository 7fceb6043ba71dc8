#ifndef PTQWATCH_CURVATURE_MEASUREMENT_COST_H_
#define PTQWATCH_CURVATURE_MEASUREMENT_COST_H_

namespace ptqwatch::internal {

/// Gradients that take as long as a measurement of curvature does: some 35 products of 2.4 to 3.4
/// gradients each.
inline constexpr double kGradientsAMeasurement = 100;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_MEASUREMENT_COST_H_
