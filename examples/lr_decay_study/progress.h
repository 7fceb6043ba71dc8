#ifndef PTQWATCH_LR_DECAY_STUDY_PROGRESS_H_
#define PTQWATCH_LR_DECAY_STUDY_PROGRESS_H_

#include <string>

namespace ptqwatch::examples {

/// How far a study is, and how long it will still take.
class Progress {
 public:
  /// `total`: all work, of which `done` was there before; in any unit.
  Progress(double total, double done) : total_(total), before_(done), done_(done) {}

  void Add(double work) { done_ += work; }
  /// "43 %, about 12 min left", from the speed since the beginning. No time where nothing was done.
  std::string Text(double seconds_since_start) const;

 private:
  double total_;
  double before_;
  double done_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_PROGRESS_H_
