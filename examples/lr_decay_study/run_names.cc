#include "run_names.h"

#include <cstdio>

namespace ptqwatch::examples {

std::string RunName(int64_t seed, const std::string& what) {
  std::string name = "s";
  name += std::to_string(seed);
  name += '.';
  return name + what;
}

std::string RunName(int64_t seed, const std::string& what, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "-%.12g", value);
  return RunName(seed, what) + text;
}

std::string ReferenceRun(const StudySettings& settings, int64_t seed) {
  return RunName(seed, "linear", settings.fraction);
}

std::string RateRun(const StudySettings& settings, int64_t seed, double rate) {
  return rate == settings.peak ? ReferenceRun(settings, seed) : RunName(seed, "rate", rate);
}

std::string WeightDecayRun(const StudySettings& settings, int64_t seed, double weight_decay) {
  return weight_decay == settings.weight_decay ? ReferenceRun(settings, seed)
                                               : RunName(seed, "decay", weight_decay);
}

}  // namespace ptqwatch::examples
