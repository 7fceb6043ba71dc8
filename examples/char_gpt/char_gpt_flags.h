#ifndef PTQWATCH_CHAR_GPT_CHAR_GPT_FLAGS_H_
#define PTQWATCH_CHAR_GPT_CHAR_GPT_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "schedule.h"
#include "trainer_flags.h"

namespace ptqwatch::examples {

/// The recipe. By default, a run of one to two minutes on one core that shows the decay spike of
/// arXiv 2510.06213.
struct CharGptFlags {
  TrainerFlags trainer;
  bool mlp = false;  ///< the small MLP instead of the GPT
  Schedule schedule;
  bool muon = false;  ///< for the matrices between embeddings and head, instead of AdamW
  double weight_decay = 0.1;
  double sam_rho = 0;    ///< radius of sharpness-aware minimisation; 0: without
  int64_t sam_from = 0;  ///< its first step
  int64_t width = 32;
  int64_t layers = 2;
  int64_t heads = 2;
  int64_t experts = 0;  ///< of a mixture in place of each MLP of the GPT; 0: the MLP
  int64_t length = 64;
  int64_t batch = 8;
  int64_t probe_sequences = 1024;
  int64_t calibration_sequences = 128;
  int64_t cooldown_every = 0;  ///< snapshots of the plateau; 0: only on request

  /// The radius at a step, the first of which is step 0.
  double SamRho(int64_t step) const { return step >= sam_from ? sam_rho : 0; }
};

/// Throws UsageError for a mistake. --help prints `description` and ends the process. `add_more`
/// adds a program's own flags.
CharGptFlags ParseCharGptFlags(
    int argc, char** argv, const std::string& description,
    absl::FunctionRef<void(CLI::App&)> add_more = [](CLI::App&) {});

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_CHAR_GPT_FLAGS_H_
