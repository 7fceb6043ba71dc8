#ifndef PTQWATCH_REPORT_COMMAND_FIELDS_H_
#define PTQWATCH_REPORT_COMMAND_FIELDS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "ptqwatch/control.h"
#include "report/report_fields.h"

// The only list of commands. Gives each one a name in JSON and in the gRPC contract, a limit, and
// its members in the manner of report_fields.h.

namespace ptqwatch::internal {

/// Limit shared by commands from outside: `burst` at once, one per `interval` in the long run.
struct CommandLimit {
  std::string_view what;
  double burst = 0;
  std::chrono::seconds interval{0};
};
inline constexpr CommandLimit kSwitchLimit = {"commands", 20, std::chrono::seconds(1)};

struct CommandEntry {
  std::string_view name;
  CommandLimit limit = kSwitchLimit;
};

constexpr CommandEntry EntryOf(const TakeSnapshot&) {
  return {"snapshot", {"snapshots", 5, std::chrono::minutes(1)}};
}
constexpr CommandEntry EntryOf(const Pause&) { return {"pause"}; }
constexpr CommandEntry EntryOf(const Resume&) { return {"resume"}; }
constexpr CommandEntry EntryOf(const SetEvery&) { return {"every"}; }
constexpr CommandEntry EntryOf(const MakeSlice&) {
  return {"slice", {"slices", 3, std::chrono::minutes(10)}};
}
constexpr CommandEntry EntryOf(const StartCooldown&) {
  return {"cooldown", {"shadow cooldowns", 3, std::chrono::minutes(10)}};
}
constexpr CommandEntry EntryOf(const CancelCooldown&) { return {"cancel_cooldown"}; }

template <typename Record, typename Visitor>
requires std::is_empty_v<std::remove_const_t<Record>>
void VisitFields(Record&, Visitor&&) {}

template <Of<SetEvery> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("steps", record.steps);
}

template <Of<MakeSlice> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("method", record.method);
  visit("bits", record.bits);
  visit("format", record.format);
  visit("points", record.points);
  visit("at_step", record.at_step);
}

template <Of<StartCooldown> Record, typename Visitor>
void VisitFields(Record& record, Visitor&& visit) {
  visit("decay_steps", record.decay_steps);
}

inline CommandEntry EntryOf(const Command& command) {
  return std::visit([](const auto& one) { return EntryOf(one); }, command);
}

/// The command called `name`, with default members, if there is one.
inline std::optional<Command> CommandNamed(std::string_view name) {
  std::optional<Command> found;
  const auto try_all = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    const auto take = [&](Command command) {
      if (EntryOf(command).name == name) found = std::move(command);
    };
    (take(Command(std::in_place_index<kIndex>)), ...);
  };
  try_all(std::make_index_sequence<std::variant_size_v<Command>>());
  return found;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_COMMAND_FIELDS_H_
