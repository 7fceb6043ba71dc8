#include <algorithm>
#include <string>

#include "claims.h"
#include "run_names.h"
#include "statistics.h"

namespace ptqwatch::examples {
namespace {

std::optional<Finding> Soup(const StudyData& data, int64_t seed) {
  const Series* soup = Find(data, RunName(seed, "soup"));
  if (soup == nullptr) return {};
  const Quantity error = ErrorOf("gptq3");
  std::vector<double> errors;
  std::vector<double> losses;
  for (int64_t i = 0; i < data.settings.soup; ++i) {
    const Series* member = Find(data, i == 0 ? ReferenceRun(data.settings, seed)
                                             : RunName(seed, "member", static_cast<double>(i)));
    if (member == nullptr) return {};
    errors.push_back(error(member->back()));
    losses.push_back(member->back().loss);
  }
  const double least = *std::min_element(errors.begin(), errors.end());
  const double mixed = error(soup->back());
  return Finding{.holds = mixed < least,
                 .numbers = {{"E of the mean %", 100 * mixed},
                             {"least E of a member %", 100 * least},
                             {"mean E of the members %", 100 * Mean(errors)},
                             {"loss of the mean nats", soup->back().loss},
                             {"mean loss of the members nats", Mean(losses)}}};
}

std::optional<Finding> Cooldown(const StudyData& data, int64_t seed) {
  const StudySettings& settings = data.settings;
  const Series* trunk = Find(data, RunName(seed, "trunk"));
  const Series* averages = Find(data, RunName(seed, "average"));
  const Series* decayed = Find(data, ReferenceRun(settings, seed));
  if (trunk == nullptr || averages == nullptr || decayed == nullptr) return {};
  const Point* constant = At(*trunk, settings.run);
  const Point* average = At(*averages, settings.run);
  if (constant == nullptr || average == nullptr) return {};
  const Point& end = decayed->back();
  const Quantity q3 = LossOf("gptq3");
  const Quantity q4 = LossOf("gptq4");
  return Finding{
      .holds = end.loss < average->loss && average->loss < constant->loss && q3(*average) < q3(end),
      .numbers = {{"loss trunk nats", constant->loss},
                  {"loss LAWA nats", average->loss},
                  {"loss cooldown nats", end.loss},
                  {"3-bit trunk nats", q3(*constant)},
                  {"3-bit LAWA nats", q3(*average)},
                  {"3-bit cooldown nats", q3(end)},
                  {"4-bit LAWA nats", q4(*average)},
                  {"4-bit cooldown nats", q4(end)},
                  {"share of the cooldown's gain in loss",
                   (constant->loss - average->loss) / (constant->loss - end.loss)}}};
}

std::optional<Finding> BelowTrunk(const StudyData& data, int64_t seed) {
  const Series* trunk = Find(data, RunName(seed, "trunk"));
  const Series* averages = Find(data, RunName(seed, "average"));
  if (trunk == nullptr || averages == nullptr) return {};
  const Quantity error = ErrorOf("gptq3");
  std::vector<double> ratios;
  for (const Point& average : *averages) {
    const Point* constant = At(*trunk, average.step);
    if (constant == nullptr) return {};
    ratios.push_back(error(average) / error(*constant));
  }
  const double most = *std::max_element(ratios.begin(), ratios.end());
  return Finding{.holds = most < 1,
                 .numbers = {{"mean ratio to the trunk", Mean(ratios)},
                             {"largest ratio", most},
                             {"averages", static_cast<double>(ratios.size())}}};
}

}  // namespace

void JudgeAverages(const StudyData& data, std::vector<Claim>& claims) {
  claims.push_back(
      Judge(data,
            {.id = "7",
             .claim = "A soup has a lower E than its ingredients.",
             .paper = "OLMo2 7B: 8.5 % against up to 9.9 %; 13B: 4.65 % against 5.1 to 5.7 %",
             .criterion = "The mean of three cooldowns of one trunk with different batches has a "
                          "lower 3-bit E than the best of them."},
            [&](int64_t seed) { return Soup(data, seed); }));
  claims.push_back(Judge(
      data,
      {.id = "18",
       .claim =
           "LAWA on the constant rate is worse than a cooldown in full precision and better at "
           "3 bits.",
       .paper = "loss 3.650/3.491/3.405 for trunk/LAWA/cooldown; 3-bit 3.753/3.560/3.604; 65 % of "
                "the gain",
       .criterion = "At the same step: loss of the cooldown < LAWA < trunk, and 3-bit loss of LAWA "
                    "< cooldown."},
      [&](int64_t seed) { return Cooldown(data, seed); }));
  claims.push_back(Judge(data,
                         {.id = "19",
                          .claim = "LAWA lowers E below that of the trunk itself.",
                          .paper = "0.68 times in the mean",
                          .criterion = "At every step at which the average of a full window is "
                                       "measured its 3-bit E is below the trunk's."},
                         [&](int64_t seed) { return BelowTrunk(data, seed); }));
}

}  // namespace ptqwatch::examples
