#ifndef PTQWATCH_QUANTIZE_STATISTICS_USE_H_
#define PTQWATCH_QUANTIZE_STATISTICS_USE_H_

#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Whether the codes of `spec` depend on statistics of the layer's inputs. The others use them, if
/// there are any, to measure the layer's loss only.
bool CodesUseStatistics(const QuantizerSpec& spec);

/// Whether Quantize refuses to run without them. RTN with a clip search does not: it then weighs
/// all inputs alike.
inline bool RequiresStatistics(const QuantizerSpec& spec) {
  return CodesUseStatistics(spec) && spec.method != QuantizationMethod::kRtn;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_STATISTICS_USE_H_
