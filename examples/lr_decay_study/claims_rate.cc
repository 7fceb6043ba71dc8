#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "claims.h"
#include "run_names.h"
#include "statistics.h"

namespace ptqwatch::examples {
namespace {

std::string Name(const std::string& what, double rate, const std::string& unit = "") {
  char text[32];
  std::snprintf(text, sizeof(text), " %g", rate);
  return what + text + (unit.empty() ? "" : " " + unit);
}

/// The runs of the sweep by ascending rate; empty where one was not made.
std::vector<const Series*> Sweep(const StudyData& data, int64_t seed) {
  std::vector<const Series*> runs;
  for (const double rate : data.settings.rates) {
    const Series* run = Find(data, RateRun(data.settings, seed, rate));
    if (run == nullptr) return {};
    runs.push_back(run);
  }
  return runs;
}

std::optional<Finding> Order(const StudyData& data, int64_t seed, const Quantity& error) {
  const StudySettings& settings = data.settings;
  const std::vector<const Series*> runs = Sweep(data, seed);
  if (runs.empty()) return {};
  const int64_t onset = settings.run - settings.DecaySteps(settings.fraction);
  std::vector<double> middle;
  std::vector<double> ends;
  for (const Series* run : runs) {
    middle.push_back(Mean(Values(*run, onset / 2, onset, error)));
    ends.push_back(error(run->back()));
  }
  Finding finding{.holds = IsFalling(middle) && IsFalling(ends)};
  for (size_t i = 0; i < runs.size(); ++i) {
    finding.numbers.push_back({Name("mid-run", settings.rates[i], "%"), 100 * middle[i]});
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    finding.numbers.push_back({Name("end", settings.rates[i], "%"), 100 * ends[i]});
  }
  return finding;
}

std::optional<Finding> EqualLoss(const StudyData& data, int64_t seed) {
  const std::vector<const Series*> runs = Sweep(data, seed);
  if (runs.empty()) return {};
  const Quantity quantized = LossOf("gptq3");
  double pairs = 0;
  double better = 0;
  Finding finding;
  for (size_t low = 0; low < runs.size(); ++low) {
    for (size_t high = low + 1; high < runs.size(); ++high) {
      const Point& a = runs[low]->back();
      const Point& b = runs[high]->back();
      if (std::abs(a.loss - b.loss) >= kSameLoss * std::min(a.loss, b.loss)) continue;
      pairs += 1;
      better += quantized(b) < quantized(a) ? 1 : 0;
    }
  }
  finding.holds = pairs > 0 && better == pairs;
  for (size_t i = 0; i < runs.size(); ++i) {
    finding.numbers.push_back({Name("loss", data.settings.rates[i], "nats"), runs[i]->back().loss});
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    finding.numbers.push_back(
        {Name("3-bit loss", data.settings.rates[i], "nats"), quantized(runs[i]->back())});
  }
  finding.numbers.push_back({"pairs of equal loss", pairs});
  finding.numbers.push_back({"of them with the larger rate ahead", better});
  return finding;
}

std::optional<Finding> JumpOrder(const StudyData& data, int64_t seed) {
  const std::vector<const Series*> runs = Sweep(data, seed);
  if (runs.empty()) return {};
  std::vector<double> jumps;
  Finding finding;
  for (size_t i = 0; i < runs.size(); ++i) {
    const int64_t decay_steps = data.settings.DecaySteps(data.settings.fraction);
    jumps.push_back(DecayOf(*runs[i], decay_steps, ErrorOf("gptq3")).jump());
    finding.numbers.push_back({Name("jump", data.settings.rates[i]), jumps.back()});
  }
  finding.holds = IsRising(jumps);
  return finding;
}

}  // namespace

void JudgeRates(const StudyData& data, std::vector<Claim>& claims) {
  for (const int bits : {3, 4}) {
    const Quantity error = ErrorOf("gptq" + std::to_string(bits));
    claims.push_back(
        Judge(data,
              {.id = "11 (" + std::to_string(bits) + " bits)",
               .claim = "The higher the peak rate, the lower E, mid-run and at the end.",
               .paper = bits == 3 ? "end 9.8/7.5/5.8/4.3 % for 3e-4/1e-3/3e-3/1e-2"
                                  : "end 1.85/1.48/1.05/0.88 % for 3e-4/1e-3/3e-3/1e-2",
               .criterion = "E falls strictly from each rate to the next, both as the mean over "
                            "the second half of the time before the decay and at the end."},
              [&](int64_t seed) { return Order(data, seed, error); }));
  }
  claims.push_back(Judge(
      data,
      {.id = "12",
       .claim = "At equal full-precision loss the larger rate gives the lower 3-bit loss.",
       .paper = "1e-3 against 3e-3: loss 3.405 and 3.406, 3-bit loss 3.662 and 3.604",
       .criterion = "So it is in each pair of rates whose losses differ by less than 1 %, of which "
                    "there is one at least."},
      [&](int64_t seed) { return EqualLoss(data, seed); }));
  claims.push_back(
      Judge(data,
            {.id = "16",
             .claim = "The larger the rate, the larger the relative jump in its decay.",
             .paper = "1.4/1.6/1.85/2.1 for 3e-4/1e-3/3e-3/1e-2",
             .criterion = "The ratio of 3-bit E at the end to its mean over as many steps before "
                          "the decay rises strictly from each rate to the next."},
            [&](int64_t seed) { return JumpOrder(data, seed); }));
}

}  // namespace ptqwatch::examples
