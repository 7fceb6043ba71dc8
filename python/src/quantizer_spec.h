#ifndef PTQWATCH_PYTHON_QUANTIZER_SPEC_H_
#define PTQWATCH_PYTHON_QUANTIZER_SPEC_H_

#include "ptqwatch/quantizer.h"
#include "pybind11/pybind11.h"

namespace ptqwatch::python {

/// Reads a quantizer: a short name such as "gptq3" or "rtn4-int-h64" (ParseQuantizer), or a dict of
/// fields of QuantizerSpec, in which enums are their names. Without `bits`, they are those of the
/// format or the method, else 4. Raises TypeError for an unknown field or a value of the wrong
/// type, and ValueError for a value that is not allowed; both name the field and the value.
QuantizerSpec QuantizerSpecFrom(pybind11::handle object);

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_QUANTIZER_SPEC_H_
