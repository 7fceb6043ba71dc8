#ifndef PTQWATCH_LR_DECAY_STUDY_RUN_NAMES_H_
#define PTQWATCH_LR_DECAY_STUDY_RUN_NAMES_H_

#include <cstdint>
#include <string>

#include "settings.h"

namespace ptqwatch::examples {

/// Names of runs. Seed 0's trunk is "s0.trunk".
std::string RunName(int64_t seed, const std::string& what);
std::string RunName(int64_t seed, const std::string& what, double value);

/// The run of `settings.run` steps with the settings' own rate, weight decay and linear decay, with
/// which the others are compared.
std::string ReferenceRun(const StudySettings& settings, int64_t seed);
/// The runs of a sweep: the reference where the value is the settings' own.
std::string RateRun(const StudySettings& settings, int64_t seed, double rate);
std::string WeightDecayRun(const StudySettings& settings, int64_t seed, double weight_decay);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_RUN_NAMES_H_
