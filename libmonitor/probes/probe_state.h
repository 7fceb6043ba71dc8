#ifndef PTQWATCH_PROBES_PROBE_STATE_H_
#define PTQWATCH_PROBES_PROBE_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "curvature/vector_space.h"

namespace ptqwatch::internal {

/// State that measuring one snapshot leaves for the next. A report names the report that its
/// ProbeState came from, so it is a pure function of (snapshot, options, ProbeState).
struct ProbeState {
  int64_t sequence = 0;  ///< 0: nothing measured yet
  /// Vectors of the curvature's space by name; they are never modified. "top.0" is the Hessian's
  /// top eigenvector, "preconditioned.0" that of the edge of stability.
  std::map<std::string, Vector> vectors;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_STATE_H_
