#ifndef PTQWATCH_MONITOR_FINGERPRINT_H_
#define PTQWATCH_MONITOR_FINGERPRINT_H_

#include <string>

#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Hex digest of everything that a report's numbers depend on, except the weights: parameter table,
/// batches, quantizer specs, precision and seed. Copies all batches to the host once.
std::string FingerprintOf(const ModelSession& session, const MonitorOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_FINGERPRINT_H_
