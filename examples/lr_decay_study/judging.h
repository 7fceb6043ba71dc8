#ifndef PTQWATCH_LR_DECAY_STUDY_JUDGING_H_
#define PTQWATCH_LR_DECAY_STUDY_JUDGING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "study_data.h"

namespace ptqwatch::examples {

/// A number behind a judgement. Its name ends with " %" or " nats" where that is its unit.
struct NamedNumber {
  std::string name = {};
  double value = 0;
};

/// What one seed shows.
struct Finding {
  bool holds = false;
  std::vector<NamedNumber> numbers = {};  ///< the same names for every seed
};

/// What is judged, written down before it was looked at.
struct ClaimText {
  std::string id = {};         ///< the claim's number in docs/lr_decay_study.md, with the bits
  std::string claim = {};      ///< one sentence
  std::string paper = {};      ///< the paper's numbers
  std::string criterion = {};  ///< when one seed shows it
};

/// A claim and what was found.
struct Claim {
  ClaimText text = {};
  std::vector<Finding> seeds = {};  ///< empty: its runs were not made
};

/// The fewest seeds that show anything.
inline constexpr int64_t kFewestSeeds = 3;

/// "holds": in all seeds; "does not hold": in none; "unclear": in some; "too few seeds" and "not
/// run" where nothing can be said.
std::string Verdict(const Claim& claim);

/// One line of numbers, "NAME MEAN ± SD" each, over the seeds.
std::string Summary(const Claim& claim);

/// Judges every seed for which `find` finds the runs that it needs.
Claim Judge(const StudyData& data, ClaimText text,
            const std::function<std::optional<Finding>(int64_t seed)>& find);

/// A number of a point.
using Quantity = std::function<double(const Point&)>;
/// E of a quantizer, such as "gptq3".
Quantity ErrorOf(const std::string& quantizer);
/// Loss of a quantizer.
Quantity LossOf(const std::string& quantizer);

/// The run, or null where it was not made.
const Series* Find(const StudyData& data, const std::string& run);
/// The point after a step, or null.
const Point* At(const Series& series, int64_t step);
/// Values at the steps in (after, to].
std::vector<double> Values(const Series& series, int64_t after, int64_t to,
                           const Quantity& quantity);

/// A decay beside the time before it.
struct Decay {
  double stable = kAbsent;  ///< mean over as many steps before the decay as the decay has
  double end = kAbsent;     ///< after the last step
  double jump() const { return end / stable; }
};
Decay DecayOf(const Series& series, int64_t decay_steps, const Quantity& quantity);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_JUDGING_H_
