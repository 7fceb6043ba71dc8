#ifndef PTQWATCH_LR_DECAY_STUDY_LEG_GRAPH_H_
#define PTQWATCH_LR_DECAY_STUDY_LEG_GRAPH_H_

#include <map>
#include <string>
#include <vector>

#include "leg.h"
#include "settings.h"

namespace ptqwatch::examples {

/// The parts of a study that can be asked for alone, the most important first.
inline constexpr const char* kGroups[] = {"budget", "rate",         "average",
                                          "shape",  "weight_decay", "cosine"};

/// All legs of the groups (all groups, where there are none) and what they need, each after those
/// that it needs. For every seed:
///   trunk          constant rate, longest of all
///   cooldown-B     from the trunk, linear to zero over `cooldown` steps, ends at budget B
///   linear-F       from the trunk, linear to zero over the last share F of `run` steps
///   rate-R         constant rate R, linear to zero over the last share `fraction`
///   average        means of the last `window` weights of the trunk (LAWA)
///   member-I, soup cooldowns with other batches, and the mean of their ends and the reference's
///   sqrt, tail     the reference with decays of the shapes 1 - sqrt and cosine
///   decay-D        weight decay D
///   cosine-N       cosine from the warm-up to the end, N steps; line: linear, `run` steps
std::vector<Leg> MakeLegs(const StudySettings& settings, const std::vector<std::string>& groups);

/// How long a leg takes, in training steps.
double WorkOf(const Leg& leg, const StudySettings& settings);

/// The last leg of each run, whose journal is the run's.
std::map<std::string, const Leg*> LastLegs(const std::vector<Leg>& legs);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_LEG_GRAPH_H_
