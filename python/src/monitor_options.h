#ifndef PTQWATCH_PYTHON_MONITOR_OPTIONS_H_
#define PTQWATCH_PYTHON_MONITOR_OPTIONS_H_

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ptqwatch/options.h"
#include "pybind11/pybind11.h"

namespace ptqwatch::python {

/// Reads MonitorOptions from a dict with its fields by name; nested structs are dicts. Absent
/// fields keep their defaults. Enums are strings, durations are seconds (int, float or timedelta),
/// a QuantizerSpec is a name ("gptq4") or a dict of its fields, and a list of them may be one
/// string ("rtn3,gptq4"). `serve` is a bool or a dict. `on_alert` is called with the report as a
/// dict, on the monitor thread.
///
/// Throws TypeError for an unknown name, with the most similar one, and for a value of the wrong
/// type; ValueError for a name of an enum or a quantizer that does not exist. Ranges are checked by
/// Validate. REQUIRES: the interpreter's lock.
MonitorOptions OptionsFrom(const pybind11::dict& fields);

/// A timeout, rounded; a NaN or a negative number counts as 0, more than 30 years as 30 years.
inline std::chrono::milliseconds FromSeconds(double seconds) {
  constexpr double kMost = 1e9;
  return std::chrono::milliseconds(
      std::llround(1e3 * (seconds > 0 ? std::min(seconds, kMost) : 0)));
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_MONITOR_OPTIONS_H_
