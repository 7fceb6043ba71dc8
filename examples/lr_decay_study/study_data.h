#ifndef PTQWATCH_LR_DECAY_STUDY_STUDY_DATA_H_
#define PTQWATCH_LR_DECAY_STUDY_STUDY_DATA_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "leg.h"
#include "settings.h"
#include "study_dir.h"

namespace ptqwatch::examples {

inline constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

/// A quantized model, beside the full-precision one on the same tokens.
struct QuantizedPoint {
  double loss = kAbsent;          ///< nats per token
  double error = kAbsent;         ///< E = CE(W_hat) / CE(W) - 1
  double error_stderr = kAbsent;  ///< over sequences
};

/// One measurement of a run. NaN: not measured.
struct Point {
  int64_t step = 0;
  double learning_rate = 0;
  double loss = kAbsent;                                 ///< full precision, nats per token
  std::map<std::string, QuantizedPoint> quantized = {};  ///< by "gptq3", "rtn4", ...
  double trace = kAbsent;                                ///< of the Hessian, over quantized weights
  double weighted_trace = kAbsent;                       ///< sum over layers of mean(w^2) trace
  double top_eigenvalue = kAbsent;
};

/// The measurements of a run by ascending step. A branch's begin with those of its trunk.
using Series = std::vector<Point>;

struct StudyData {
  StudySettings settings = {};
  std::map<std::string, Series> runs = {};     ///< the finished ones
  std::map<std::string, double> seconds = {};  ///< what each leg took, by its id
};

/// Reads the journals of the runs whose last legs are finished. Throws std::runtime_error where one
/// cannot be read.
StudyData ReadStudy(const StudySettings& settings, const StudyDir& dir,
                    const std::vector<Leg>& legs);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_STUDY_DATA_H_
