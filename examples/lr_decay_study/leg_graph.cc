#include "leg_graph.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "run_names.h"

namespace ptqwatch::examples {
namespace {

// Keeps the batches of a soup's members apart from each other's and the trunk's.
constexpr uint64_t kMemberStream = 0x5851f42d4c957f2d;
// What measuring takes, for the estimate of the time left.
constexpr double kStepsPerMeasurement = 300;

using Groups = std::vector<std::string>;

/// A run before it is cut into legs.
struct Course {
  std::string run = {};
  Groups groups = {};
  int64_t seed = 0;
  Schedule schedule = {};
  double weight_decay = 0;
  std::string parent = {};
  int64_t from = 0;
  std::set<int64_t> cuts = {};  ///< steps whose states others begin with
  std::optional<uint64_t> batch_seed = {};
  bool keeps_weights = false;
};

class Builder {
 public:
  explicit Builder(const StudySettings& settings) : s_(settings) {}

  std::vector<Leg> Build() {
    for (int64_t seed = 0; seed < s_.seeds; ++seed) AddTrunk(seed);
    for (int64_t seed = 0; seed < s_.seeds; ++seed) AddRates(seed);
    for (int64_t seed = 0; seed < s_.seeds; ++seed) AddAverages(seed);
    for (int64_t seed = 0; seed < s_.seeds; ++seed) AddShapes(seed);
    for (int64_t seed = 0; seed < s_.seeds; ++seed) AddWeightDecays(seed);
    for (int64_t seed = 0; seed < s_.seeds; ++seed) AddCosines(seed);
    return std::move(legs_);
  }

 private:
  Schedule Wsd(int64_t steps, int64_t decay_steps, DecayShape shape = DecayShape::kLinear) const {
    return {.kind = ScheduleKind::kWsd,
            .peak = s_.peak,
            .steps = steps,
            .warmup_steps = s_.warmup,
            .decay_steps = decay_steps,
            .shape = shape};
  }

  /// Cuts it at its cuts, and where a leg would become too long. The id of the last leg.
  std::string Add(const Course& course) {
    std::string parent = course.parent;
    int64_t from = course.from;
    while (from < course.schedule.steps) {
      const auto cut = course.cuts.upper_bound(from);
      const int64_t to = std::min({course.schedule.steps, from + s_.leg,
                                   cut == course.cuts.end() ? course.schedule.steps : *cut});
      Leg leg{.id = IdOf(course.run, to),
              .run = course.run,
              .groups = course.groups,
              .seed = course.seed,
              .parent = parent,
              .from = from,
              .to = to,
              .schedule = course.schedule,
              .weight_decay = course.weight_decay,
              .keeps_weights = course.keeps_weights};
      if (!parent.empty()) leg.needs = {parent};
      if (from == course.from) leg.batch_seed = course.batch_seed;
      parent = leg.id;
      from = to;
      legs_.push_back(std::move(leg));
    }
    return parent;
  }

  static std::string IdOf(const std::string& run, int64_t step) {
    char text[24];
    std::snprintf(text, sizeof(text), "@%06lld", static_cast<long long>(step));
    return run + text;
  }

  /// A run that leaves the trunk where its schedule begins to decay.
  std::string Branch(int64_t seed, const std::string& run, const Schedule& schedule, Groups groups,
                     std::optional<uint64_t> batch_seed = {}) {
    const int64_t from = schedule.steps - schedule.decay_steps;
    return Add({.run = run,
                .groups = std::move(groups),
                .seed = seed,
                .schedule = schedule,
                .weight_decay = s_.weight_decay,
                .parent = IdOf(RunName(seed, "trunk"), from),
                .from = from,
                .batch_seed = batch_seed});
  }

  void AddTrunk(int64_t seed) {
    std::set<int64_t> cuts;
    for (const int64_t budget : s_.budgets) cuts.insert(budget - s_.cooldown);
    for (const double part : s_.fractions) cuts.insert(s_.run - s_.DecaySteps(part));
    Add({.run = RunName(seed, "trunk"),
         .groups = {"budget"},
         .seed = seed,
         .schedule = {.kind = ScheduleKind::kConstant,
                      .peak = s_.peak,
                      .steps = s_.trunk(),
                      .warmup_steps = s_.warmup},
         .weight_decay = s_.weight_decay,
         .cuts = cuts,
         .keeps_weights = true});
    for (const int64_t budget : s_.budgets) {
      Branch(seed, RunName(seed, "cooldown", static_cast<double>(budget)), Wsd(budget, s_.cooldown),
             {"budget"});
    }
    Branch(seed, ReferenceRun(s_, seed), Wsd(s_.run, s_.DecaySteps(s_.fraction)),
           {"rate", "average", "shape", "weight_decay", "cosine"});
  }

  void AddRates(int64_t seed) {
    for (const double rate : s_.rates) {
      if (rate == s_.peak) continue;
      Schedule schedule = Wsd(s_.run, s_.DecaySteps(s_.fraction));
      schedule.peak = rate;
      Add({.run = RateRun(s_, seed, rate),
           .groups = {"rate"},
           .seed = seed,
           .schedule = schedule,
           .weight_decay = s_.weight_decay});
    }
  }

  /// Where the trunk keeps the weights after a step.
  KeptWeights OfTrunk(int64_t seed, int64_t step) const {
    const std::string run = RunName(seed, "trunk");
    for (const Leg& leg : legs_) {
      if (leg.run == run && leg.from < step && step <= leg.to) return {leg.id, step};
    }
    return {};
  }

  void AddMeans(const std::string& run, int64_t seed, std::vector<WeightsMean> means) {
    Leg leg{.id = run, .run = run, .groups = {"average"}, .seed = seed, .means = std::move(means)};
    for (const WeightsMean& mean : leg.means) {
      for (const KeptWeights& member : mean.members) {
        if (std::count(leg.needs.begin(), leg.needs.end(), member.leg) == 0) {
          leg.needs.push_back(member.leg);
        }
      }
    }
    legs_.push_back(std::move(leg));
  }

  void AddAverages(int64_t seed) {
    std::vector<WeightsMean> means;
    for (int64_t step = s_.average_every; step <= s_.trunk(); step += s_.average_every) {
      if (step < s_.window * s_.every) continue;
      WeightsMean mean{.step = step};
      for (int64_t i = s_.window; i-- > 0;) {
        mean.members.push_back(OfTrunk(seed, step - i * s_.every));
      }
      means.push_back(std::move(mean));
    }
    AddMeans(RunName(seed, "average"), seed, std::move(means));

    WeightsMean soup{.step = s_.run, .members = {{IdOf(ReferenceRun(s_, seed), s_.run), s_.run}}};
    for (int64_t i = 1; i < s_.soup; ++i) {
      const std::string member = RunName(seed, "member", static_cast<double>(i));
      soup.members.push_back(
          {Branch(seed, member, Wsd(s_.run, s_.DecaySteps(s_.fraction)), {"average"},
                  kMemberStream * static_cast<uint64_t>(i) + static_cast<uint64_t>(seed)),
           s_.run});
    }
    AddMeans(RunName(seed, "soup"), seed, {soup});
  }

  void AddShapes(int64_t seed) {
    for (const double part : s_.fractions) {
      if (part == s_.fraction) continue;
      Branch(seed, RunName(seed, "linear", part), Wsd(s_.run, s_.DecaySteps(part)), {"shape"});
    }
    const int64_t decay_steps = s_.DecaySteps(s_.fraction);
    Branch(seed, RunName(seed, "sqrt"), Wsd(s_.run, decay_steps, DecayShape::kOneMinusSqrt),
           {"shape"});
    Branch(seed, RunName(seed, "tail"), Wsd(s_.run, decay_steps, DecayShape::kCosine), {"shape"});
    AddWhole(seed, RunName(seed, "line"), s_.run, DecayShape::kLinear, {"shape"});
    AddWhole(seed, RunName(seed, "cosine", static_cast<double>(s_.run)), s_.run,
             DecayShape::kCosine, {"shape", "cosine"});
  }

  /// A decay from the warm-up to the end.
  void AddWhole(int64_t seed, const std::string& run, int64_t steps, DecayShape shape,
                Groups groups) {
    Add({.run = run,
         .groups = std::move(groups),
         .seed = seed,
         .schedule = Wsd(steps, steps - s_.warmup, shape),
         .weight_decay = s_.weight_decay});
  }

  void AddWeightDecays(int64_t seed) {
    for (const double weight_decay : s_.decays) {
      if (weight_decay == s_.weight_decay) continue;
      Add({.run = WeightDecayRun(s_, seed, weight_decay),
           .groups = {"weight_decay"},
           .seed = seed,
           .schedule = Wsd(s_.run, s_.DecaySteps(s_.fraction)),
           .weight_decay = weight_decay});
    }
  }

  void AddCosines(int64_t seed) {
    for (const int64_t steps : s_.cosines) {
      if (steps == s_.run) continue;
      AddWhole(seed, RunName(seed, "cosine", static_cast<double>(steps)), steps,
               DecayShape::kCosine, {"cosine"});
    }
  }

  const StudySettings& s_;
  std::vector<Leg> legs_;
};

}  // namespace

double WorkOf(const Leg& leg, const StudySettings& settings) {
  const int64_t steps = leg.to - leg.from;
  const auto measurements = leg.means.empty() ? steps / settings.every : std::ssize(leg.means);
  return static_cast<double>(steps) + kStepsPerMeasurement * static_cast<double>(measurements);
}

std::vector<Leg> MakeLegs(const StudySettings& settings, const std::vector<std::string>& groups) {
  std::vector<Leg> all = Builder(settings).Build();
  if (groups.empty()) return all;
  std::set<std::string> wanted;
  // Legs stand after those that they need.
  for (auto leg = all.rbegin(); leg != all.rend(); ++leg) {
    const bool asked_for = std::any_of(groups.begin(), groups.end(), [&](const std::string& group) {
      return std::count(leg->groups.begin(), leg->groups.end(), group) > 0;
    });
    if (!asked_for && wanted.count(leg->id) == 0) continue;
    wanted.insert(leg->id);
    wanted.insert(leg->needs.begin(), leg->needs.end());
  }
  std::erase_if(all, [&](const Leg& leg) { return wanted.count(leg.id) == 0; });
  return all;
}

std::map<std::string, const Leg*> LastLegs(const std::vector<Leg>& legs) {
  std::map<std::string, const Leg*> last;
  for (const Leg& leg : legs) last[leg.run] = &leg;
  return last;
}

}  // namespace ptqwatch::examples
