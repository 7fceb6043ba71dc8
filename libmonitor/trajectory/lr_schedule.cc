#include "trajectory/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

using ShapeName = std::pair<std::string_view, LrSchedule::Shape>;
constexpr ShapeName kShapes[] = {{"linear", LrSchedule::Shape::kLinear},
                                 {"cosine", LrSchedule::Shape::kCosine},
                                 {"1-sqrt", LrSchedule::Shape::kOneMinusSqrt}};

struct Kind {
  std::string_view name;
  std::vector<std::string_view> required;
  std::vector<std::string_view> optional;
};

const std::vector<Kind>& Kinds() {
  static const auto* const kinds = new std::vector<Kind>{
      {"wsd", {"peak", "decay_start", "end"}, {"warmup", "final", "shape"}},
      {"cosine", {"peak", "end"}, {"warmup", "final"}},
      {"linear", {"peak", "end"}, {"warmup", "final"}},
      {"constant", {"peak"}, {"warmup"}},
  };
  return *kinds;
}

absl::Status ScheduleError(std::string_view problem) {
  return absl::InvalidArgumentError(StrCat("schedule: ", problem));
}

absl::Status BadValue(std::string_view key, std::string_view value, std::string_view wanted) {
  return ScheduleError(StrCat(key, " is ", Quoted(value), ", not ", wanted));
}

absl::Status SetRate(std::string_view key, std::string_view value, double* rate) {
  if (absl::SimpleAtod(absl::string_view(value.data(), value.size()), rate) &&
      std::isfinite(*rate) && *rate >= 0) {
    return absl::OkStatus();
  }
  return BadValue(key, value, "a rate of at least 0");
}

absl::Status SetStep(std::string_view key, std::string_view value, int64_t* step) {
  if (absl::SimpleAtoi(absl::string_view(value.data(), value.size()), step) && *step >= 0) {
    return absl::OkStatus();
  }
  return BadValue(key, value, "a step of at least 0");
}

absl::Status SetKey(std::string_view key, std::string_view value, LrSchedule* schedule) {
  if (key == "peak") return SetRate(key, value, &schedule->peak);
  if (key == "final") return SetRate(key, value, &schedule->final);
  if (key == "warmup") return SetStep(key, value, &schedule->warmup);
  if (key == "decay_start") return SetStep(key, value, &schedule->decay_start);
  if (key == "end") return SetStep(key, value, &schedule->end);
  for (const auto& [name, shape] : kShapes) {
    if (name != value) continue;
    schedule->shape = shape;
    return absl::OkStatus();
  }
  return BadValue(key, value, "linear, cosine or 1-sqrt");
}

// Whether the numbers fit together.
absl::Status CheckSchedule(const LrSchedule& schedule, bool decays) {
  if (schedule.peak <= 0) return ScheduleError(StrCat("peak is ", schedule.peak, ", not positive"));
  if (schedule.final > schedule.peak) {
    return ScheduleError(
        StrCat("final is ", schedule.final, ", more than peak (", schedule.peak, ")"));
  }
  if (schedule.decay_start < schedule.warmup) {
    return ScheduleError(StrCat("decay_start is ", schedule.decay_start,
                                ", before the end of the "
                                "warm-up (warmup is ",
                                schedule.warmup, ")"));
  }
  if (decays && schedule.end <= schedule.decay_start) {
    return ScheduleError(StrCat("end is ", schedule.end, ", not after the beginning of the decay (",
                                schedule.decay_start, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Kind> FindKind(std::string_view name) {
  std::vector<std::string> known;
  for (const Kind& kind : Kinds()) {
    if (kind.name == name) return kind;
    known.emplace_back(kind.name);
  }
  return ScheduleError(StrCat("unknown kind ", Quoted(name), "; known are ",
                              absl::StrJoin(known, ", "),
                              ", followed by a colon and such as peak=2e-4,warmup=2000"));
}

std::string KeysOf(const Kind& kind) {
  std::string keys;
  for (const auto& names : {kind.required, kind.optional}) {
    for (const std::string_view name : names) keys += StrCat(keys.empty() ? "" : ", ", name);
  }
  return keys;
}

bool Contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

double LrSchedule::RateAt(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (end == 0 || step <= decay_start) return peak;
  if (step >= end) return final;
  const double x = static_cast<double>(step - decay_start) / static_cast<double>(end - decay_start);
  switch (shape) {
    case Shape::kLinear:
      return peak + (final - peak) * x;
    case Shape::kCosine:
      return final + (peak - final) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case Shape::kOneMinusSqrt:
      return peak - (peak - final) * std::sqrt(x);
  }
  return peak;
}

absl::StatusOr<LrSchedule> ParseLrSchedule(std::string_view expression) {
  const size_t colon = expression.find(':');
  PTQWATCH_ASSIGN_OR_RETURN(const Kind kind, FindKind(expression.substr(0, colon)));
  const std::string keys(colon == std::string_view::npos ? "" : expression.substr(colon + 1));
  LrSchedule schedule;
  if (kind.name == "cosine") schedule.shape = LrSchedule::Shape::kCosine;
  std::vector<std::string> given;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(keys, ',', absl::SkipEmpty()))) {
    const std::string_view text = part;
    const std::string_view key = text.substr(0, text.find('='));
    if (!Contains(kind.required, key) && !Contains(kind.optional, key)) {
      return ScheduleError(
          StrCat("unknown key ", Quoted(key), "; ", kind.name, " has ", KeysOf(kind)));
    }
    if (std::find(given.begin(), given.end(), key) != given.end()) {
      return ScheduleError(StrCat(key, " is given twice"));
    }
    if (key.size() == text.size()) return ScheduleError(StrCat(key, " has no value"));
    PTQWATCH_RETURN_IF_ERROR(SetKey(key, text.substr(key.size() + 1), &schedule));
    given.emplace_back(key);
  }
  for (const std::string_view key : kind.required) {
    if (std::find(given.begin(), given.end(), key) == given.end()) {
      return ScheduleError(StrCat(kind.name, " needs ", key, "="));
    }
  }
  if (kind.name != "wsd") schedule.decay_start = schedule.warmup;
  PTQWATCH_RETURN_IF_ERROR(CheckSchedule(schedule, kind.name != "constant"));
  return schedule;
}

absl::StatusOr<LrSchedules> LrSchedules::Parse(absl::Span<const std::string> texts) {
  LrSchedules schedules;
  for (const std::string& text : texts) {
    const std::string_view whole = text;
    const size_t equals = whole.substr(0, whole.find(':')).find('=');
    const std::string branch(equals == std::string_view::npos ? "" : whole.substr(0, equals));
    const std::string_view expression =
        equals == std::string_view::npos ? whole : whole.substr(equals + 1);
    PTQWATCH_ASSIGN_OR_RETURN(const LrSchedule schedule, ParseLrSchedule(expression));
    if (!schedules.schedules_.emplace(branch, schedule).second) {
      return ScheduleError(branch.empty() ? "two are given without a branch"
                                          : StrCat("branch ", Quoted(branch), " has two"));
    }
  }
  return schedules;
}

const LrSchedule* LrSchedules::Of(const std::string& branch) const {
  auto found = schedules_.find(branch);
  if (found == schedules_.end()) found = schedules_.find("");
  return found == schedules_.end() ? nullptr : &found->second;
}

}  // namespace ptqwatch::internal
