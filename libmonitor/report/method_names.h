#ifndef PTQWATCH_REPORT_METHOD_NAMES_H_
#define PTQWATCH_REPORT_METHOD_NAMES_H_

#include <string_view>

#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// How a quantization method is called: the part of its row in quantize/methods.h that programs
/// without the engine need, too.
struct MethodName {
  std::string_view name;            ///< in journals, metrics and flags: never change one
  std::string_view label;           ///< in sentences; a digit at its end says the bits
  std::string_view format = "int";  ///< of its codes
};

/// Adds a method and returns its value. The strings must outlive the process. Not thread-safe: call
/// it before anything reads a name.
QuantizationMethod AddMethodName(const MethodName& name);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_METHOD_NAMES_H_
