#include "probes/prediction_check.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "analysis/series.h"

namespace ptqwatch::internal {
namespace prediction_check_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Problem(double predicted, double on_batch, std::optional<double> stderr_nats,
                    std::optional<double> on_probe) {
  QuantizationReport measured;
  measured.delta_nats = on_probe;
  return PredictionProblem(
      {.predicted_delta_nats = predicted, .delta_nats = on_batch, .delta_stderr_nats = stderr_nats},
      measured);
}

TEST(PredictionProblem, IsEmptyIfTheErrorIsSmallerThanThePrediction) {
  EXPECT_THAT(Problem(0.10, 0.10, 0.01, 0.10), IsEmpty());
  EXPECT_THAT(Problem(0.10, 0.14, 0.01, 0.15), IsEmpty()) << "no parabola, but of that size";
  EXPECT_THAT(Problem(-0.10, -0.12, 0.01, -0.11), IsEmpty());
  EXPECT_THAT(Problem(0.10, 0.12, std::nullopt, std::nullopt), IsEmpty());
}

TEST(PredictionProblem, IsAWrongSign) {
  EXPECT_THAT(Problem(-0.02, 0.03, 0.001, 0.03),
              HasSubstr("prediction of -0.02 nats is 0.05 nats in error: its own batch gives 0.03 "
                        "(+-0.001), the probe data 0.03"));
  EXPECT_THAT(Problem(0.02, -0.01, 0.001, std::nullopt), HasSubstr("in error"));
  EXPECT_THAT(Problem(-0.02, -0.02, 0.001, 0.03), HasSubstr("in error")) << "another batch";
}

TEST(PredictionProblem, IsABatchTooSmallForIt) {
  EXPECT_THAT(Problem(0.02, 0.02, 0.011, 0.02), HasSubstr("0.022 nats in error"));
}

TEST(PredictionProblem, IsALossThatIsNotAParabola) {
  EXPECT_THAT(Problem(0.02, 0.05, 0.001, 0.05), HasSubstr("in error"));
}

TEST(PredictionProblem, NamesTheChoicesOfExpertsThatNoSecondOrderSees) {
  const ErrorCurvature error{
      .predicted_delta_nats = 0.02, .delta_nats = 0.05, .delta_stderr_nats = 0.001};
  QuantizationReport measured;
  measured.routing_change_ratio = 0.125;
  EXPECT_THAT(PredictionProblem(error, measured),
              HasSubstr("it does not see that 12 % of the routers' choices change"));
  measured.routing_change_ratio = 0;
  EXPECT_THAT(PredictionProblem(error, measured), Not(HasSubstr("routers")));
}

LossAlong Along(double scale, std::optional<double> delta, double predicted, double error) {
  return {.scale = scale,
          .delta_nats = delta,
          .predicted_delta_nats = predicted,
          .delta_stderr_nats = error};
}

TEST(BeyondQuadratic, IsWhereThePredictionStopsHolding) {
  EXPECT_EQ(BeyondQuadratic({}), std::nullopt);
  // Off by 20 %, 25 % and 26 % of the measured change.
  std::vector<LossAlong> along = {Along(0.5, 0.01, 0.008, 0), Along(1, 0.0625, 0.046875, 0),
                                  Along(1.5, 0.1, 0.074, 0)};
  EXPECT_EQ(BeyondQuadratic(along), 1.5);
  along[2].delta_stderr_nats = 0.0135;
  EXPECT_EQ(BeyondQuadratic(along), std::nullopt) << "within two standard errors";
  along[1].delta_nats = 0.07;
  EXPECT_EQ(BeyondQuadratic(along), std::nullopt) << "holds again at a larger scale";
  along[2].delta_nats.reset();
  EXPECT_EQ(BeyondQuadratic(along), 1) << "not finite";
  along[0].predicted_delta_nats = -0.008;
  EXPECT_EQ(BeyondQuadratic(along), 0.5);
}

TEST(PredictionProblem, KeepsCurvatureFromExplainingARise) {
  Report report;
  QuantizationReport& entry = report.quantization.emplace_back();
  entry.method = QuantizationMethod::kGptq;
  entry.bits = 3;
  entry.status = ProbeStatus::kOk;
  entry.delta_nats = 0.1;
  entry.curvature_along_error = 2;
  EXPECT_TRUE(SeriesOf(report).contains("curvature_along_error_gptq3"));
  entry.prediction_detail = "the second-order prediction is in error";
  EXPECT_FALSE(SeriesOf(report).contains("curvature_along_error_gptq3"));
  EXPECT_TRUE(SeriesOf(report).contains("loss_delta_gptq3"));
}

}  // namespace prediction_check_test
}  // namespace ptqwatch::internal
