#ifndef PTQWATCH_PROBES_PROBE_STATE_H_
#define PTQWATCH_PROBES_PROBE_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "curvature/vector_space.h"

namespace ptqwatch::internal {

/// What one measurement leaves for the next. A report names the sequence of the report it came
/// from, so that a report is a pure function of (snapshot, options, ProbeState).
struct ProbeState {
  int64_t sequence = 0;  ///< 0: nothing measured yet
  /// Vectors of the curvature's space, not written to, by what they are: "top.0" the Hessian's top
  /// eigenvector, "preconditioned.0" that of the edge of stability.
  std::map<std::string, Vector> vectors;

  /// Undefined where there is none.
  Vector vector(const std::string& name) const {
    const auto found = vectors.find(name);
    return found == vectors.end() ? Vector() : found->second;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_STATE_H_
