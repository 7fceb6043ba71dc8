#include "calibration.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"

namespace ptqwatch::tools {
namespace {

// GramAccumulator sums in chunks of 256 rows, so pieces with a multiple of that give the same bits
// as one piece.
constexpr int64_t kRowMultiple = 256;
constexpr int64_t kPieceElements = int64_t{1} << 24;

}  // namespace

absl::StatusOr<const GramStatistics*> Calibration::Get(const std::string& name,
                                                       const ExecutionContext& context) {
  if (name == name_) return &statistics_;
  const TensorInfo& info = *inputs_.Find(name);
  const int64_t cols = info.shape.back();
  const int64_t rows = info.elements() / cols;
  const int64_t step = std::max(kRowMultiple, kPieceElements / cols / kRowMultiple * kRowMultiple);
  name_.clear();
  statistics_ = {};
  GramAccumulator gram(cols);
  for (int64_t done = 0; done < rows; done += step) {
    const int64_t count = std::min(step, rows - done);
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<float> x,
                              inputs_.ReadFloats(name, done * cols, count * cols));
    PTQWATCH_RETURN_IF_ERROR(gram.Add({.data = x.data(), .rows = count, .cols = cols}, context));
  }
  statistics_ = gram.Take();
  name_ = name;
  return &statistics_;
}

}  // namespace ptqwatch::tools
