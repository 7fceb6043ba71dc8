#ifndef PTQWATCH_TESTS_FUZZ_DEFINITION_H_
#define PTQWATCH_TESTS_FUZZ_DEFINITION_H_

#include <string>

#include "ptqwatch/quantizer.h"

namespace ptqwatch::fuzz {

/// Compares a result that has codes with the definition of its method, in float64: every scale,
/// zero and code, and the loss. A code of GPTQ is compared with the weight as it is once the
/// result's own earlier codes have been compensated, so that codes next to ties do not matter.
/// Returns what differs; empty if nothing does. Cost: cols^3 with GPTQ, 256 rows cols with formats.
std::string DifferenceFromDefinition(MatrixView weight, const GramStatistics* statistics,
                                     const QuantizerSpec& spec, const QuantizedWeight& result);

}  // namespace ptqwatch::fuzz

#endif  // PTQWATCH_TESTS_FUZZ_DEFINITION_H_
