#ifndef PTQWATCH_LR_DECAY_STUDY_CLAIMS_H_
#define PTQWATCH_LR_DECAY_STUDY_CLAIMS_H_

#include <vector>

#include "judging.h"
#include "study_data.h"

namespace ptqwatch::examples {

// The criteria's numbers, fixed before any result was seen. ClaimText::criterion says where each is
// used.

/// Claim 8: the most that E drifts when the tokens double, as a share of what a decay adds to it.
inline constexpr double kMostDrift = 0.25;
/// Claim 9: the least ratio of E at the end of a decay to E before it.
inline constexpr double kLeastJump = 1.5;
/// Errors whose ratio is below this count as the same.
inline constexpr double kSame = 1.25;
/// Claim 12: full-precision losses that differ by less than this share count as the same.
inline constexpr double kSameLoss = 0.01;
/// Claim 23: likewise, of a sweep of weight decays.
inline constexpr double kSameLossOfDecays = 0.02;
/// Claim 25: the least rank correlation of a signal that tracks E.
inline constexpr double kTracks = 0.7;
/// Claim 28: the least rank correlation of quantizers that agree.
inline constexpr double kAgrees = 0.9;

/// All claims, in the order of their numbers, then the questions about the shape of a decay.
std::vector<Claim> JudgeClaims(const StudyData& data);

// Its parts, one for each source file.
void JudgeBudgets(const StudyData& data, std::vector<Claim>& claims);    ///< 8, 9, 10
void JudgeRates(const StudyData& data, std::vector<Claim>& claims);      ///< 11, 12, 16
void JudgeAverages(const StudyData& data, std::vector<Claim>& claims);   ///< 7, 18, 19
void JudgeCurvature(const StudyData& data, std::vector<Claim>& claims);  ///< 25, 28
void JudgeShapes(const StudyData& data, std::vector<Claim>& claims);     ///< 17, 22, 23, shapes

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_CLAIMS_H_
