#ifndef PTQWATCH_REPORT_ENUM_NAMES_H_
#define PTQWATCH_REPORT_ENUM_NAMES_H_

#include "base/enum_names.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// The names of a quantization method: the part of its row in quantize/methods.h that programs
/// without the engine also need.
struct MethodName {
  std::string_view name;            ///< in journals, metrics and flags; never changed
  std::string_view label;           ///< in sentences; a digit at its end gives the bits
  std::string_view format = "int";  ///< of its codes
};
/// Adds a method and returns its value. The strings must outlive the process. Not thread-safe: call
/// it before anything reads a name.
QuantizationMethod AddMethodName(const MethodName& name);

/// The names of the enums of reports, events and statuses, as stored in run directories.
PTQWATCH_EXPORT EnumNames NamesOf(LrPhase);
PTQWATCH_EXPORT EnumNames NamesOf(VerdictState);
PTQWATCH_EXPORT EnumNames NamesOf(AdviceAction);
PTQWATCH_EXPORT EnumNames NamesOf(AveragingKind);
PTQWATCH_EXPORT EnumNames NamesOf(ProbeStatus);
PTQWATCH_EXPORT EnumNames NamesOf(SnapshotTrigger);
PTQWATCH_EXPORT EnumNames NamesOf(QuantizationMethod);
PTQWATCH_EXPORT EnumNames NamesOf(LayerStatus);
PTQWATCH_EXPORT EnumNames NamesOf(CalibrationMode);
PTQWATCH_EXPORT EnumNames NamesOf(CurvatureScope);
PTQWATCH_EXPORT EnumNames NamesOf(HessianMode);
PTQWATCH_EXPORT EnumNames NamesOf(EigenvalueMethod);
PTQWATCH_EXPORT EnumNames NamesOf(EigenvalueStart);
PTQWATCH_EXPORT EnumNames NamesOf(OptimizerKind);
PTQWATCH_EXPORT EnumNames NamesOf(Event::Kind);
PTQWATCH_EXPORT EnumNames NamesOf(Severity);
PTQWATCH_EXPORT EnumNames NamesOf(Health);
PTQWATCH_EXPORT EnumNames NamesOf(SliceState);
PTQWATCH_EXPORT EnumNames NamesOf(DecayShape);
PTQWATCH_EXPORT EnumNames NamesOf(CooldownState);
PTQWATCH_EXPORT EnumNames NamesOf(ServerState);

/// Reads an enum name from a report. If the name was added by a later version or is empty ("no
/// value"), `value` becomes the default, so that the rest of the report can be used.
template <typename Enum>
void ReadName(std::string_view name, Enum& value) {
  value = EnumValue<Enum>(NamesOf(Enum{}), name).value_or(Enum{});
}
/// Also accepts states from journals of earlier versions: "collecting", "degrading" (the newest
/// snapshot was above the baseline) and "degraded" (two in a row were).
inline void ReadName(std::string_view name, VerdictState& value) {
  if (name == "collecting") {
    value = VerdictState::kWarmingUp;
  } else if (name == "degrading" || name == "degraded") {
    value = VerdictState::kUnclear;
  } else {
    value = EnumValue<VerdictState>(NamesOf(VerdictState{}), name).value_or(VerdictState{});
  }
}
template <typename Enum>
void ReadName(std::string_view name, std::optional<Enum>& value) {
  value = EnumValue<Enum>(NamesOf(Enum{}), name);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_ENUM_NAMES_H_
