#include <cmath>
#include <string>

#include "claims.h"
#include "run_names.h"
#include "statistics.h"

namespace ptqwatch::examples {
namespace {

/// Pairs of numbers of the same points.
struct Pairs {
  std::vector<double> x;
  std::vector<double> y;

  /// The points after step `after` of a run, if it was made.
  void Add(const Series* run, int64_t after, const Quantity& qx, const Quantity& qy) {
    if (run == nullptr) return;
    for (const Point& point : *run) {
      if (point.step <= after || std::isnan(qx(point)) || std::isnan(qy(point))) continue;
      x.push_back(qx(point));
      y.push_back(qy(point));
    }
  }
};

/// One recipe: the trunk from the first budget on, and its cooldowns from where they leave it.
Pairs OneRecipe(const StudyData& data, int64_t seed, const Quantity& qx, const Quantity& qy) {
  const StudySettings& s = data.settings;
  Pairs pairs;
  pairs.Add(Find(data, RunName(seed, "trunk")), s.budgets.front() - 1, qx, qy);
  for (const int64_t budget : s.budgets) {
    pairs.Add(Find(data, RunName(seed, "cooldown", static_cast<double>(budget))),
              budget - s.cooldown, qx, qy);
  }
  pairs.Add(Find(data, ReferenceRun(s, seed)), s.run - s.DecaySteps(s.fraction), qx, qy);
  return pairs;
}

/// That, the other rates and the averages, from the first budget on.
Pairs AllRecipes(const StudyData& data, int64_t seed, const Quantity& qx, const Quantity& qy) {
  Pairs pairs = OneRecipe(data, seed, qx, qy);
  const int64_t after = data.settings.budgets.front() - 1;
  for (const double rate : data.settings.rates) {
    if (rate == data.settings.peak) continue;
    pairs.Add(Find(data, RateRun(data.settings, seed, rate)), after, qx, qy);
  }
  pairs.Add(Find(data, RunName(seed, "average")), after, qx, qy);
  return pairs;
}

std::optional<Finding> Tracks(const StudyData& data, int64_t seed, const Quantity& signal) {
  const Quantity error = ErrorOf("gptq3");
  const Series* trunk = Find(data, RunName(seed, "trunk"));
  const Series* averages = Find(data, RunName(seed, "average"));
  const Series* decayed = Find(data, ReferenceRun(data.settings, seed));
  if (trunk == nullptr || averages == nullptr || decayed == nullptr) return {};
  std::vector<double> by_rate;
  for (const double rate : data.settings.rates) {
    const Series* run = Find(data, RateRun(data.settings, seed, rate));
    if (run == nullptr) return {};
    by_rate.push_back(signal(run->back()));
  }
  std::vector<double> ratios;
  double below = 0;
  for (const Point& average : *averages) {
    const Point* constant = At(*trunk, average.step);
    if (constant == nullptr) return {};
    ratios.push_back(signal(average) / signal(*constant));
    below += ratios.back() < 1 ? 1 : 0;
  }
  const Pairs one = OneRecipe(data, seed, signal, error);
  const Pairs all = AllRecipes(data, seed, signal, error);
  const double rank = Spearman(one.x, one.y);
  const int64_t decay_steps = data.settings.DecaySteps(data.settings.fraction);
  return Finding{
      .holds = rank >= kTracks && IsFalling(by_rate) && below == static_cast<double>(ratios.size()),
      .numbers = {
          {"Spearman, one recipe", rank},
          {"n", static_cast<double>(one.x.size())},
          {"Spearman, all recipes", Spearman(all.x, all.y)},
          {"n of all", static_cast<double>(all.x.size())},
          {"jump in the decay", DecayOf(*decayed, decay_steps, signal).jump()},
          {"lowest to highest rate", by_rate.front() / by_rate.back()},
          {"LAWA to trunk", Mean(ratios)},
          {"share of averages below the trunk", below / static_cast<double>(ratios.size())}}};
}

std::optional<Finding> Agreement(const StudyData& data, int64_t seed) {
  if (Find(data, RateRun(data.settings, seed, data.settings.rates.front())) == nullptr) return {};
  const Pairs three = AllRecipes(data, seed, ErrorOf("rtn3"), ErrorOf("gptq3"));
  const Pairs four = AllRecipes(data, seed, ErrorOf("rtn4"), ErrorOf("gptq4"));
  const double rank = Spearman(three.x, three.y);
  return Finding{.holds = rank >= kAgrees,
                 .numbers = {{"Spearman, 3 bits", rank},
                             {"Spearman, 4 bits", Spearman(four.x, four.y)},
                             {"n", static_cast<double>(three.x.size())}}};
}

}  // namespace

void JudgeCurvature(const StudyData& data, std::vector<Claim>& claims) {
  const struct {
    const char* id;
    const char* name;
    Quantity signal;
  } signals[] = {
      {"25 (trace)", "The Hessian's trace", [](const Point& point) { return point.trace; }},
      {"25 (top eigenvalue)", "The top eigenvalue",
       [](const Point& point) { return point.top_eigenvalue; }},
      {"25 (weighted trace)", "The weight-scaled trace, which the paper does not have,",
       [](const Point& point) { return point.weighted_trace; }},
  };
  for (const auto& [id, name, signal] : signals) {
    claims.push_back(Judge(
        data,
        {.id = id,
         .claim =
             std::string(name) + " tracks E: up in a decay, lower at high rates and for averages.",
         .paper = "ordinal only",
         .criterion = "Spearman with 3-bit E over trunk and cooldowns of one recipe is 0.7 at "
                      "least; it falls strictly from each rate to the next at the end; LAWA "
                      "is below the trunk at every step."},
        [&data, &signal](int64_t seed) { return Tracks(data, seed, signal); }));
  }
  claims.push_back(Judge(data,
                         {.id = "28",
                          .claim = "Quantizers agree: RTN ranks checkpoints as GPTQ does.",
                          .paper = "ordinal only",
                          .criterion = "Spearman of the two over the checkpoints of all recipes is "
                                       "0.9 at least at 3 bits."},
                         [&](int64_t seed) { return Agreement(data, seed); }));
}

}  // namespace ptqwatch::examples
