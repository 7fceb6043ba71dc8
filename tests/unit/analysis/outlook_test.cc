#include "analysis/outlook.h"

#include <numeric>
#include <vector>

#include "analysis_fixture.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace outlook_test {

// A run whose full-precision and quantized losses are given, two snapshots a plateau period apart.
struct Losses {
  double full = 0;
  double quantized = 0;
};

class OutlookTest : public ::testing::Test {
 protected:
  void Add(const Losses& losses, double rate) {
    Report report = At(100 * ++snapshots_, losses.quantized - losses.full, rate);
    report.probe_loss_nats = losses.full;
    report.quantization[0].loss_nats = losses.quantized;
    history_.Add(report);
  }
  // Six snapshots of full-precision loss 2 and quantized loss 2.1, with a little scatter.
  void AddPlateau() {
    for (int i = 0; i < 6; ++i) {
      const double scatter = 0.002 * (i % 3 - 1);
      Add({2.0 + scatter, 2.1 + 2 * scatter}, kRate);
    }
  }
  std::vector<DecayOutlook> Outlook() const {
    std::vector<size_t> plateau(6), decay(static_cast<size_t>(snapshots_ - 6));
    std::iota(plateau.begin(), plateau.end(), 0);
    std::iota(decay.begin(), decay.end(), 6);
    return OutlookOf(history_, plateau, decay);
  }

 private:
  History history_;
  int snapshots_ = 0;
};

TEST_F(OutlookTest, SaysHowMuchOfTheGainSurvives) {
  AddPlateau();
  for (int i = 1; i <= 4; ++i) Add({2.0 - 0.05 * i, 2.1 - 0.02 * i}, kRate * (1 - 0.2 * i));
  const auto outlook = Outlook();
  ASSERT_EQ(outlook.size(), 1U);
  // Full precision gained 0.2, the quantized model 0.08.
  EXPECT_NEAR(*outlook[0].gain_kept_ratio, 0.4, 0.02);
  EXPECT_GT(*outlook[0].gain_kept_stderr, 0);
  EXPECT_LT(*outlook[0].gain_kept_stderr, 0.1);
  EXPECT_EQ(outlook[0].minimum_step, std::nullopt);
}

TEST_F(OutlookTest, NamesTheMinimumThatIsPast) {
  AddPlateau();
  // Falls for four snapshots, and rises for six.
  const std::vector<double> quantized = {2.08, 2.05, 2.03, 2.05, 2.08,
                                         2.11, 2.14, 2.16, 2.18, 2.19};
  for (size_t i = 0; i < quantized.size(); ++i) {
    const double part = static_cast<double>(i + 1);
    Add({2.0 - 0.02 * part, quantized[i]}, kRate * (1 - 0.09 * part));
  }
  const auto outlook = Outlook();
  ASSERT_EQ(outlook.size(), 1U);
  EXPECT_EQ(outlook[0].minimum_step, 900);
  EXPECT_NEAR(*outlook[0].minimum_loss_nats, (2.05 + 2.03 + 2.05) / 3, 1e-9);
  EXPECT_NEAR(*outlook[0].minimum_learning_rate, kRate * (1 - 0.27), 1e-9);
  EXPECT_LT(*outlook[0].gain_kept_ratio, 0);
}

TEST_F(OutlookTest, SaysNothingThatTheDataDoNotShow) {
  AddPlateau();
  Add({1.999, 2.1}, 0.009);
  EXPECT_TRUE(Outlook().empty());
  Add({1.998, 2.1}, 0.008);
  EXPECT_TRUE(Outlook().empty());
}

}  // namespace outlook_test
}  // namespace ptqwatch::internal
