#include "claims.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "leg_graph.h"
#include "results.h"
#include "run_names.h"

namespace ptqwatch::examples {
namespace claims_test {

/// Measurements as the paper would have them: E is 5 % at the peak of 1e-2 and twice that once the
/// rate is zero, lower at higher rates and for averages. Curvature follows it.
Point TextbookPoint(const StudySettings& settings, const Leg& leg, int64_t step) {
  const bool is_mean = !leg.means.empty();
  const double rate = is_mean ? settings.peak : leg.schedule.LearningRate(step - 1);
  const double peak = is_mean ? settings.peak : leg.schedule.peak;
  const double fallen = 1 - std::min(1.0, rate / peak);
  const double by_rate = std::pow(settings.peak / peak, 0.3);
  const double by_decay = is_mean ? 1 : std::pow(settings.weight_decay / leg.weight_decay, 0.1);
  // Higher rates jump more; steps near zero add a little.
  const int64_t decay_steps = leg.schedule.decay_steps;
  const double by_length =
      decay_steps > 0 && fallen > 0
          ? 1 + 0.5 * static_cast<double>(decay_steps) / static_cast<double>(settings.run)
          : 1;
  double error =
      0.05 * by_rate * by_decay * by_length * (1 + fallen * std::pow(peak / settings.peak, 0.2));
  if (is_mean) error *= 0.7;
  Point point{.step = step, .learning_rate = rate, .loss = 1.7 - 0.1 * fallen};
  if (is_mean) point.loss = 1.65;
  for (const char* name : {"gptq3", "gptq4", "rtn3", "rtn4"}) {
    point.quantized[name] = {.loss = point.loss * (1 + error), .error = error};
  }
  point.trace = point.weighted_trace = point.top_eigenvalue = 1000 * error;
  return point;
}

StudyData Textbook() {
  StudySettings settings = SettingsOf("full");
  StudyData data{.settings = settings};
  const std::vector<Leg> legs = MakeLegs(settings, {});
  for (const auto& [run, leg] : LastLegs(legs)) {
    Series& series = data.runs[run];
    for (const WeightsMean& mean : leg->means) {
      series.push_back(TextbookPoint(settings, *leg, mean.step));
    }
    for (int64_t step = settings.every; step <= leg->to; step += settings.every) {
      series.push_back(TextbookPoint(settings, *leg, step));
    }
  }
  return data;
}

Claim Get(const StudyData& data, const std::string& id) {
  for (const Claim& claim : JudgeClaims(data)) {
    if (claim.text.id == id) return claim;
  }
  ADD_FAILURE() << "no claim " << id;
  return {};
}

std::string VerdictOn(const StudyData& data, const std::string& id) {
  return Verdict(Get(data, id));
}

/// Multiplies the errors of a run from a step on.
void Scale(StudyData& data, const std::string& run, double by, int64_t from = 0) {
  for (Point& point : data.runs.at(run)) {
    if (point.step < from) continue;
    for (auto& [name, quantized] : point.quantized) {
      quantized.error *= by;
      quantized.loss = point.loss * (1 + quantized.error);
    }
  }
}

TEST(Claims, HoldInATextbook) {
  for (const Claim& claim : JudgeClaims(Textbook())) {
    // There the length of a decay is too small to matter, and a cosine's is as any other.
    if (claim.text.id == "time" || claim.text.id == "22 (slope)") continue;
    EXPECT_EQ(Verdict(claim), "holds") << claim.text.id << ": " << Summary(claim);
    EXPECT_FALSE(Summary(claim).empty());
    EXPECT_EQ(Summary(claim).find("nan"), std::string::npos) << Summary(claim);
  }
}

TEST(Claims, OneSeedThatDiffersMakesItUnclear) {
  StudyData data = Textbook();
  Scale(data, "s1.cooldown-4000", 0.5, 4000);
  EXPECT_EQ(VerdictOn(data, "9 (3 bits)"), "unclear");
}

TEST(Claims, FewSeedsShowNothing) {
  StudyData data = Textbook();
  data.settings.seeds = 2;
  EXPECT_EQ(VerdictOn(data, "9 (3 bits)"), "too few seeds");
}

TEST(Claims, WhatWasNotRunIsNotJudged) {
  StudyData data = Textbook();
  std::erase_if(data.runs,
                [](const auto& run) { return run.first.find("rate") != std::string::npos; });
  EXPECT_EQ(VerdictOn(data, "11 (3 bits)"), "not run");
  EXPECT_EQ(VerdictOn(data, "18"), "holds");
}

TEST(Claims, ADriftingTrunkIsNotFlat) {
  StudyData data = Textbook();
  for (int64_t seed = 0; seed < 3; ++seed) {
    for (int64_t step = 4000; step <= 32000; step += 4000) {
      Scale(data, RunName(seed, "trunk"), 1.15, step);
    }
  }
  EXPECT_EQ(VerdictOn(data, "8 (3 bits)"), "does not hold");
}

TEST(Claims, NoiseAloneIsNoFlatTrunk) {
  StudyData data = Textbook();
  for (int64_t seed = 0; seed < 3; ++seed) {
    double by = 3;
    for (Point& point : data.runs.at(RunName(seed, "trunk"))) {
      point.quantized["gptq3"].error *= by;
      by = 3.2 - by;
    }
  }
  EXPECT_EQ(VerdictOn(data, "8 (3 bits)"), "does not hold");
}

TEST(Claims, RatesOutOfOrder) {
  StudyData data = Textbook();
  for (int64_t seed = 0; seed < 3; ++seed) Scale(data, RunName(seed, "rate", 2e-2), 2, 16000);
  EXPECT_EQ(VerdictOn(data, "11 (3 bits)"), "does not hold");
  EXPECT_EQ(VerdictOn(data, "12"), "does not hold");
}

TEST(Claims, AveragesThatAreNoBetter) {
  StudyData data = Textbook();
  for (int64_t seed = 0; seed < 3; ++seed) {
    Scale(data, RunName(seed, "average"), 1.5, 30000);
    Scale(data, RunName(seed, "soup"), 4);
  }
  EXPECT_EQ(VerdictOn(data, "18"), "holds");
  EXPECT_EQ(VerdictOn(data, "19"), "does not hold");
  EXPECT_EQ(VerdictOn(data, "7"), "does not hold");
}

TEST(Claims, ATimeAtSmallRatesCanBeTold) {
  StudyData data = Textbook();
  for (int64_t seed = 0; seed < 3; ++seed) {
    Scale(data, RunName(seed, "line"), 2);
    Scale(data, RunName(seed, "cosine", 16000), 2.2);
  }
  EXPECT_EQ(VerdictOn(data, "time"), "holds");
  for (int64_t seed = 0; seed < 3; ++seed) Scale(data, RunName(seed, "line"), 0.5);
  EXPECT_EQ(VerdictOn(data, "time"), "does not hold");
}

TEST(Results, AreValidJsonWithNullForWhatIsMissing) {
  StudyData data = Textbook();
  data.runs.at("s0.trunk").front().trace = kAbsent;
  data.seconds["s0.trunk@002000"] = 1.5;
  const auto json = nlohmann::json::parse(ResultsJson(data, JudgeClaims(data)).dump());
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("evidence"), true);
  EXPECT_EQ(json.at("settings").at("seeds"), 3);
  EXPECT_EQ(json.at("seconds").at("s0.trunk@002000"), 1.5);
  const auto& first = json.at("runs").at("s0.trunk").at(0);
  EXPECT_EQ(first.at("step"), 400);
  EXPECT_TRUE(first.at("trace").is_null());
  EXPECT_DOUBLE_EQ(first.at("gptq3").at("error_ratio").get<double>(),
                   data.runs.at("s0.trunk").front().quantized.at("gptq3").error);
  EXPECT_EQ(json.at("claims").size(), JudgeClaims(data).size());
  for (const auto& claim : json.at("claims")) EXPECT_TRUE(claim.contains("verdict"));
}

TEST(Results, SayWhenTheyAreNoEvidence) {
  StudyData data = Textbook();
  EXPECT_EQ(ResultsPage(data, JudgeClaims(data)).find("smoke test"), std::string::npos);
  data.settings.scale = "quick";
  EXPECT_NE(ResultsPage(data, JudgeClaims(data)).find("smoke test"), std::string::npos);
  EXPECT_NE(ResultsTable(data, JudgeClaims(data)).find("smoke test"), std::string::npos);
}

TEST(Summary, HasUnitsAndSpread) {
  const Claim claim{
      .text = {},
      .seeds = {{.holds = true, .numbers = {{"end %", 8}, {"loss nats", 1.5}, {"n", 7}}},
                {.holds = true, .numbers = {{"end %", 10}, {"loss nats", 1.6}, {"n", 7}}}}};
  EXPECT_EQ(Summary(claim), "end 9.00 ± 1.41 %; loss 1.550 ± 0.071 nats; n 7");
}

}  // namespace claims_test
}  // namespace ptqwatch::examples
