#ifndef PTQWATCH_LR_DECAY_STUDY_TRAIN_LEG_H_
#define PTQWATCH_LR_DECAY_STUDY_TRAIN_LEG_H_

#include "leg.h"
#include "settings.h"
#include "study_dir.h"

namespace ptqwatch::examples {

/// Makes a leg whose needs are finished, on the calling thread, and finishes it. Deterministic.
/// Throws std::runtime_error where a file cannot be written or a measurement fails.
void MakeLeg(const Leg& leg, const StudySettings& settings, const StudyDir& dir);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_TRAIN_LEG_H_
