#ifndef PTQWATCH_TRAJECTORY_LR_SCHEDULE_H_
#define PTQWATCH_TRAJECTORY_LR_SCHEDULE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ptqwatch::internal {

/// How the learning rate of a run went: up in a straight line from 0 to `peak`, constant, down to
/// `final`, constant.
struct LrSchedule {
  enum class Shape {
    kLinear,
    kCosine,
    kOneMinusSqrt,  ///< peak - (peak - final) sqrt(x), x from 0 to 1 (arXiv 2405.18392)
  };
  double peak = 0;
  int64_t warmup = 0;       ///< first step at the peak
  int64_t decay_start = 0;  ///< last step at the peak
  int64_t end = 0;          ///< first step at `final`; 0: no decay
  double final = 0;
  Shape shape = Shape::kLinear;
  int64_t middle = 0;  ///< step at which half of the decay is done; 0: half-way to `end`
  double floor = 0;    ///< the rate after the warm-up is at least this

  double RateAt(int64_t step) const;
};

/// Reads one of
///   wsd:peak=2e-4,warmup=2000,decay_start=4198001,end=4720000[,final=0][,shape=linear]
///   cosine:peak=3e-4,warmup=2000,end=477000[,final=3e-5][,middle=238000][,floor=0]
///   linear:peak=6e-5,end=11931[,warmup=0][,final=0]
///   constant:peak=1e-3[,warmup=0]
/// with `shape` linear, cosine or 1-sqrt. Numbers after =; `warmup` is 0 unless given. cosine and
/// linear decay from the end of the warm-up on. InvalidArgument names the key and its value.
absl::StatusOr<LrSchedule> ParseLrSchedule(std::string_view expression);

/// Schedules by branch; branches that are not listed have the EXPRESSION without a branch.
class LrSchedules {
 public:
  /// Each of `texts` is EXPRESSION, BRANCH=EXPRESSION or the name of a recipe
  /// (trajectory/recipes.h), whose schedules serve the branches that it lists and no others.
  /// InvalidArgument as above, for an unknown name, with the known ones, and for two schedules of a
  /// branch.
  static absl::StatusOr<LrSchedules> Parse(absl::Span<const std::string> texts);
  /// Null if the branch has no schedule.
  const LrSchedule* Of(const std::string& branch) const;

 private:
  absl::Status Add(std::string_view text);

  std::map<std::string, LrSchedule> schedules_;
  bool serves_others_ = false;  // the schedule of "" is that of branches that are not listed
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_LR_SCHEDULE_H_
