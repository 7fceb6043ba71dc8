#ifndef PTQWATCH_LR_DECAY_STUDY_SETTINGS_H_
#define PTQWATCH_LR_DECAY_STUDY_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace ptqwatch::examples {

/// What a study trains, and how often it measures. Two studies with equal settings give equal
/// results on the same machine. Lengths are in optimizer steps.
struct StudySettings {
  std::string scale = "full";
  int64_t seeds = 3;
  std::string text_sha256;

  // The model and its batches (examples/char_gpt's MLP).
  int64_t width = 64;
  int64_t layers = 3;
  int64_t length = 64;  ///< predictions a sequence
  int64_t batch = 8;    ///< sequences a step
  double weight_decay = 0.1;
  double peak = 1e-2;  ///< learning rate of the plateau

  // What is measured.
  int64_t group_size = 64;
  int64_t probe_sequences = 1024;
  int64_t calibration_sequences = 128;
  int64_t every = 400;  ///< steps between measurements, and between the weights that are kept

  // The runs.
  int64_t warmup = 300;
  int64_t leg = 8000;             ///< at most so many steps without saving the state
  std::vector<int64_t> budgets;   ///< ends of the short cooldowns
  int64_t cooldown = 2000;        ///< the length of each of them
  int64_t run = 16000;            ///< the length of every other run
  std::vector<double> rates;      ///< peaks of the sweep, ascending; `peak` is one of them
  std::vector<double> decays;     ///< weight decays, ascending; `weight_decay` is one of them
  std::vector<double> fractions;  ///< of a run, over which the rate falls; ascending
  double fraction = 0.2;          ///< the one of them that every other comparison has
  std::vector<int64_t> cosines;   ///< lengths of runs with a cosine schedule, `run` among them
  int64_t window = 10;            ///< weights of an average, `every` steps apart
  int64_t average_every = 1600;   ///< steps between averages that are measured
  int64_t soup = 3;               ///< cooldowns that are averaged

  /// Steps of the decay of a run of `run` steps.
  int64_t DecaySteps(double part) const;
  /// What is trained longest: the last budget.
  int64_t trunk() const { return budgets.back(); }
};

/// "full": evidence. "quick": most of its runs, a fifth as long and with one seed, to see that
/// everything works. "tiny": seconds, for tests. REQUIRES: one of these.
StudySettings SettingsOf(const std::string& scale);

nlohmann::ordered_json ToJson(const StudySettings& settings);

/// "NAME is A, not B" for each member in which two of these objects differ.
std::vector<std::string> Differences(const nlohmann::ordered_json& kept,
                                     const nlohmann::ordered_json& asked);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_SETTINGS_H_
