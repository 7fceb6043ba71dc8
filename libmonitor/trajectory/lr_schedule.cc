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
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "trajectory/recipes.h"

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
      {"cosine", {"peak", "end"}, {"warmup", "final", "middle", "floor"}},
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
  if (key == "floor") return SetRate(key, value, &schedule->floor);
  if (key == "warmup") return SetStep(key, value, &schedule->warmup);
  if (key == "decay_start") return SetStep(key, value, &schedule->decay_start);
  if (key == "end") return SetStep(key, value, &schedule->end);
  if (key == "middle") return SetStep(key, value, &schedule->middle);
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
  for (const auto& [key, rate] :
       {std::pair("final", schedule.final), std::pair("floor", schedule.floor)}) {
    if (rate <= schedule.peak) continue;
    return ScheduleError(StrCat(key, " is ", rate, ", more than peak (", schedule.peak, ")"));
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
  if (schedule.middle != 0 &&
      (schedule.middle <= schedule.decay_start || schedule.middle >= schedule.end)) {
    return ScheduleError(StrCat("middle is ", schedule.middle, ", not between the warm-up (",
                                schedule.decay_start, ") and end (", schedule.end, ")"));
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

// The share of the decay that is done at `step`.
double DecayAt(const LrSchedule& schedule, int64_t step) {
  const auto share = [step](int64_t from, int64_t to) {
    return static_cast<double>(step - from) / static_cast<double>(to - from);
  };
  if (schedule.middle == 0) return share(schedule.decay_start, schedule.end);
  if (step < schedule.middle) return share(schedule.decay_start, schedule.middle) / 2;
  return (1 + share(schedule.middle, schedule.end)) / 2;
}

bool Contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Where the = of BRANCH=EXPRESSION is; npos without a branch.
size_t BranchEnd(std::string_view text) { return text.substr(0, text.find(':')).find('='); }

// Whether `text` can only name a recipe: an expression has a colon after its kind.
bool IsName(std::string_view text) {
  if (text.empty() || text.find_first_of(":=") != std::string_view::npos) return false;
  return std::none_of(Kinds().begin(), Kinds().end(),
                      [text](const Kind& kind) { return kind.name == text; });
}

absl::Status UnknownName(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : Recipes()) names.push_back(recipe.name);
  const std::string_view nearest = NearestName(name, names);
  std::string known(nearest);
  for (const std::string_view other : names) {
    if (other != nearest) known += StrCat(", ", other);
  }
  return ScheduleError(
      StrCat("unknown run ", Quoted(name), "; known are ", known,
             "; of others it is an expression, such as cosine:peak=3e-4,end=477000"));
}

}  // namespace

double LrSchedule::RateAt(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (end == 0 || step <= decay_start) return peak;
  if (step >= end) return std::max(final, floor);
  const double x = DecayAt(*this, step);
  double rate = peak;
  switch (shape) {
    case Shape::kLinear:
      rate = peak + (final - peak) * x;
      break;
    case Shape::kCosine:
      rate = final + (peak - final) * (1 + std::cos(std::numbers::pi * x)) / 2;
      break;
    case Shape::kOneMinusSqrt:
      rate = peak - (peak - final) * std::sqrt(x);
      break;
  }
  return std::max(rate, floor);
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

absl::Status LrSchedules::Add(std::string_view text) {
  const size_t end = BranchEnd(text);
  const bool has_branch = end != std::string_view::npos;
  const std::string branch(has_branch ? text.substr(0, end) : "");
  PTQWATCH_ASSIGN_OR_RETURN(const LrSchedule schedule,
                            ParseLrSchedule(has_branch ? text.substr(end + 1) : text));
  if (schedules_.emplace(branch, schedule).second) return absl::OkStatus();
  return ScheduleError(branch.empty() ? "two are given without a branch"
                                      : StrCat("branch ", Quoted(branch), " has two"));
}

absl::StatusOr<LrSchedules> LrSchedules::Parse(absl::Span<const std::string> texts) {
  LrSchedules schedules;
  for (const std::string& text : texts) {
    if (!IsName(text)) {
      PTQWATCH_RETURN_IF_ERROR(schedules.Add(text));
      schedules.serves_others_ |= BranchEnd(text) == std::string_view::npos;
      continue;
    }
    const Recipe* const recipe = FindRecipe(text);
    if (recipe == nullptr) return UnknownName(text);
    for (const std::string& schedule :
         std::vector<std::string>(absl::StrSplit(std::string(recipe->schedules), ' '))) {
      PTQWATCH_RETURN_IF_ERROR(schedules.Add(schedule));
    }
  }
  return schedules;
}

const LrSchedule* LrSchedules::Of(const std::string& branch) const {
  auto found = schedules_.find(branch);
  if (found == schedules_.end() && serves_others_) found = schedules_.find("");
  return found == schedules_.end() ? nullptr : &found->second;
}

}  // namespace ptqwatch::internal
