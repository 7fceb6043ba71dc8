#ifndef PTQWATCH_REPORT_WATCHED_QUANTIZER_H_
#define PTQWATCH_REPORT_WATCHED_QUANTIZER_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The index of the quantizer that a verdict follows: GPTQ with the fewest bits from 3 up; without
/// one, another method with the fewest bits from 3 up; else the one with the most bits. The first
/// of equals wins. Depends on the configured quantizers and not on their results, so it is the same
/// in every report. Absent if the list is empty.
std::optional<size_t> WatchedQuantizer(absl::Span<const QuantizerSpec> quantizers);
std::optional<size_t> WatchedQuantizer(absl::Span<const QuantizationReport> quantizers);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_WATCHED_QUANTIZER_H_
