#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "claims.h"
#include "leg_graph.h"
#include "run_names.h"
#include "statistics.h"

namespace ptqwatch::examples {
namespace {

std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

/// E at the end of a run; NaN where it was not made.
double EndError(const StudyData& data, const std::string& run) {
  const Series* series = Find(data, run);
  return series == nullptr ? kAbsent : ErrorOf("gptq3")(series->back());
}

bool IsSame(double a, double b) { return std::max(a, b) < kSame * std::min(a, b); }

std::string CosineRun(int64_t seed, int64_t steps) {
  return RunName(seed, "cosine", static_cast<double>(steps));
}

/// Claim 17.
std::optional<Finding> Lengths(const StudyData& data, int64_t seed) {
  std::vector<double> ends;
  Finding finding;
  for (const double part : data.settings.fractions) {
    const double end = EndError(data, RunName(seed, "linear", part));
    if (std::isnan(end)) return {};
    finding.numbers.push_back({"end of " + Text(100 * part) + " % decay %", 100 * end});
    if (part >= 0.1) ends.push_back(end);
  }
  finding.holds = IsRising(ends);
  return finding;
}

/// Claim 22, at one length.
std::optional<Finding> CosineEnd(const StudyData& data, int64_t seed) {
  const StudySettings& s = data.settings;
  const Series* cosine = Find(data, CosineRun(seed, s.run));
  const Series* wsd = Find(data, ReferenceRun(s, seed));
  if (cosine == nullptr || wsd == nullptr) return {};
  const Quantity error = ErrorOf("gptq3");
  const Quantity loss = LossOf("gptq3");
  return Finding{.holds = error(cosine->back()) > error(wsd->back()),
                 .numbers = {{"cosine %", 100 * error(cosine->back())},
                             {"WSD %", 100 * error(wsd->back())},
                             {"loss cosine nats", cosine->back().loss},
                             {"loss WSD nats", wsd->back().loss},
                             {"3-bit loss cosine nats", loss(cosine->back())},
                             {"3-bit loss WSD nats", loss(wsd->back())}}};
}

/// Claim 22, over the lengths that both have.
std::optional<Finding> CosineSlope(const StudyData& data, int64_t seed) {
  std::vector<double> doublings;
  std::vector<double> cosines;
  std::vector<double> cooldowns;
  for (const int64_t steps : data.settings.cosines) {
    const double cosine = EndError(data, CosineRun(seed, steps));
    const double cooldown = EndError(data, RunName(seed, "cooldown", static_cast<double>(steps)));
    if (std::isnan(cosine) || std::isnan(cooldown)) continue;
    doublings.push_back(std::log2(static_cast<double>(steps)));
    cosines.push_back(cosine);
    cooldowns.push_back(cooldown);
  }
  if (doublings.size() < 3) return {};
  const double cosine = FitLine(doublings, cosines).slope;
  const double wsd = FitLine(doublings, cooldowns).slope;
  return Finding{.holds = wsd < cosine,
                 .numbers = {{"cosine, points per doubling", 100 * cosine},
                             {"WSD, points per doubling", 100 * wsd}}};
}

/// Claim 23.
std::optional<Finding> WeightDecay(const StudyData& data, int64_t seed) {
  const StudySettings& s = data.settings;
  std::vector<double> ends;
  std::vector<double> losses;
  Finding finding;
  for (const double decay : s.decays) {
    const Series* run = Find(data, WeightDecayRun(s, seed, decay));
    if (run == nullptr) return {};
    ends.push_back(ErrorOf("gptq3")(run->back()));
    losses.push_back(run->back().loss);
    finding.numbers.push_back({"end " + Text(decay) + " %", 100 * ends.back()});
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    finding.numbers.push_back({"loss " + Text(s.decays[i]) + " nats", losses[i]});
  }
  // The rate below the peak is about as far from it as one weight decay from the next.
  const auto peak = std::find(s.rates.begin(), s.rates.end(), s.peak);
  if (peak == s.rates.begin() || peak == s.rates.end()) return {};
  const double by_rate =
      EndError(data, RateRun(s, seed, *(peak - 1))) / EndError(data, ReferenceRun(s, seed));
  if (std::isnan(by_rate)) return {};
  double by_decay = 0;
  for (size_t i = 1; i < ends.size(); ++i) by_decay = std::max(by_decay, ends[i - 1] / ends[i]);
  finding.numbers.push_back({"largest factor of a step of weight decay", by_decay});
  finding.numbers.push_back({"factor of a step of the rate", by_rate});
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  finding.holds =
      IsFalling(ends) && by_decay < by_rate && *most - *least < kSameLossOfDecays * *least;
  return finding;
}

/// 1 - sqrt and cosine over the last part of the run, beside linear.
std::optional<Finding> Shapes(const StudyData& data, int64_t seed) {
  const double linear = EndError(data, ReferenceRun(data.settings, seed));
  const double root = EndError(data, RunName(seed, "sqrt"));
  const double tail = EndError(data, RunName(seed, "tail"));
  if (std::isnan(linear + root + tail)) return {};
  return Finding{
      .holds = IsSame(root, linear) && IsSame(tail, linear),
      .numbers = {
          {"linear %", 100 * linear}, {"1 - sqrt %", 100 * root}, {"cosine %", 100 * tail}}};
}

/// Steps of a run with a rate below a tenth of the peak.
double StepsAtSmallRates(const Schedule& schedule) {
  double steps = 0;
  for (int64_t step = schedule.warmup_steps; step < schedule.steps; ++step) {
    steps += schedule.LearningRate(step) < 0.1 * schedule.peak ? 1 : 0;
  }
  return steps;
}

/// Two shapes by two lengths of decay.
std::optional<Finding> TimeOrShape(const StudyData& data, int64_t seed) {
  const StudySettings& s = data.settings;
  const double short_line = EndError(data, ReferenceRun(s, seed));
  const double short_cosine = EndError(data, RunName(seed, "tail"));
  const double line = EndError(data, RunName(seed, "line"));
  const double cosine = EndError(data, CosineRun(seed, s.run));
  if (std::isnan(short_line + short_cosine + line + cosine)) return {};
  std::vector<double> errors;
  std::vector<double> traces;
  std::vector<double> steps;
  for (const Leg& leg : MakeLegs(s, {"shape"})) {
    if (leg.seed != seed || leg.to != s.run || leg.to != leg.schedule.steps) continue;
    const Series* run = Find(data, leg.run);
    if (run == nullptr) continue;
    errors.push_back(ErrorOf("gptq3")(run->back()));
    traces.push_back(run->back().trace);
    steps.push_back(StepsAtSmallRates(leg.schedule));
  }
  const Series* trunk = Find(data, RunName(seed, "trunk"));
  const Series* whole = Find(data, CosineRun(seed, s.run));
  if (trunk == nullptr) return {};
  const auto trace = [](const Point& point) { return point.trace; };
  const double plateau = Mean(Values(*trunk, s.run / 2, s.run, trace));
  return Finding{
      .holds = IsSame(line, cosine) && IsSame(short_line, short_cosine) &&
               std::min(line, cosine) >= kSame * std::max(short_line, short_cosine),
      .numbers = {{"short linear %", 100 * short_line},
                  {"short cosine %", 100 * short_cosine},
                  {"whole linear %", 100 * line},
                  {"whole cosine %", 100 * cosine},
                  {"trace of the whole cosine to the plateau's", whole->back().trace / plateau},
                  {"Spearman of E and steps below a tenth of the peak", Spearman(steps, errors)},
                  {"of the trace", Spearman(steps, traces)},
                  {"n", static_cast<double>(steps.size())}}};
}

}  // namespace

void JudgeShapes(const StudyData& data, std::vector<Claim>& claims) {
  const auto add = [&](ClaimText text, std::optional<Finding> (*find)(const StudyData&, int64_t)) {
    claims.push_back(Judge(data, std::move(text), [&](int64_t seed) { return find(data, seed); }));
  };
  add({.id = "17",
       .claim = "A longer decay ends with a slightly larger E.",
       .paper = "4 bits: 0.94 % after 18k steps, 1.05 % after 38k",
       .criterion = "3-bit E rises strictly from a decay over 10 % of the run to 20 % and 40 %."},
      Lengths);
  add({.id = "22 (end)",
       .claim = "A cosine ends with a larger E than WSD after the same tokens.",
       .paper = "ordinal only",
       .criterion = "3-bit E at the end of the whole-run cosine is above that of the reference."},
      CosineEnd);
  add({.id = "22 (slope)",
       .claim = "E grows more slowly with the tokens under WSD than under a cosine.",
       .paper = "ordinal only",
       .criterion = "The slope of 3-bit E over log2(tokens) is smaller for the cooldowns than for "
                    "the cosines of the same lengths."},
      CosineSlope);
  add({.id = "23",
       .claim = "A larger weight decay lowers E at the same loss, by less than the rate does.",
       .paper = "ordinal only",
       .criterion = "3-bit E falls strictly with weight decay, losses within 2 %, and no step of "
                    "it has as large a factor as the step from the next lower rate to the peak."},
      WeightDecay);
  add({.id = "shape",
       .claim = "Over the same last part of a run the shape of the decay matters little.",
       .paper = "not in the paper",
       .criterion = "3-bit E after 1 - sqrt and after cosine is within a factor of 1.25 of that "
                    "after linear."},
      Shapes);
  add({.id = "time",
       .claim = "A whole-run cosine ends with a larger E than WSD for its time at small rates, not "
                "for its shape.",
       .paper = "not in the paper",
       .criterion =
           "Linear and cosine decays end within a factor of 1.25 of each other, both over "
           "the whole run and over its last part; whole-run ones at least 1.25 times above "
           "short ones."},
      TimeOrShape);
}

}  // namespace ptqwatch::examples
