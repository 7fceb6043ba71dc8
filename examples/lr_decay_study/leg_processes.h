#ifndef PTQWATCH_LR_DECAY_STUDY_LEG_PROCESSES_H_
#define PTQWATCH_LR_DECAY_STUDY_LEG_PROCESSES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "leg.h"
#include "settings.h"
#include "stop_signal.h"
#include "study_dir.h"

namespace ptqwatch::examples {

/// How the legs of a study went.
struct LegsMade {
  size_t finished = 0;  ///< of all, with those that were there before
  size_t failed = 0;
  size_t left_out = 0;  ///< because a leg that they need failed, or a signal came
};

/// Makes the legs that are not finished, `jobs` at a time. Each is a process: this program with
/// `arguments` and "--leg ID". It dies with this one. A leg that fails is named on standard error
/// with its log; those that do not need it go on. Ends early, and ends the processes, where a
/// signal comes.
LegsMade RunLegs(const std::vector<Leg>& legs, const StudySettings& settings, const StudyDir& dir,
                 int jobs, const std::vector<std::string>& arguments, const StopSignal& stop);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_LEG_PROCESSES_H_
