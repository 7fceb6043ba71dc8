#include "progress.h"

#include <cmath>
#include <cstdio>

namespace ptqwatch::examples {

std::string Progress::Text(double seconds_since_start) const {
  const double share = total_ > 0 ? done_ / total_ : 1;
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f %%", std::floor(100 * share));
  std::string line = text;
  if (done_ <= before_ || done_ >= total_) return line;
  const double left = seconds_since_start * (total_ - done_) / (done_ - before_);
  if (left < 90) {
    std::snprintf(text, sizeof(text), ", about %.0f s left", std::ceil(left));
  } else {
    std::snprintf(text, sizeof(text), ", about %.0f min left", std::ceil(left / 60));
  }
  return line + text;
}

}  // namespace ptqwatch::examples
