#include "trajectory/trainer_state.h"

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

// `text` with null for the words NaN, Infinity and -Infinity outside strings, which Python's json
// writes but JSON does not have.
std::string WithoutNonFinite(std::string_view text) {
  constexpr std::string_view kWords[] = {"NaN", "-Infinity", "Infinity"};
  std::string plain;
  plain.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      plain += text[i++];
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      bool replaced = false;
      for (const std::string_view word : kWords) {
        if (!text.substr(i).starts_with(word)) continue;
        plain += "null";
        i += word.size() - 1;
        replaced = true;
        break;
      }
      if (replaced) continue;
    }
    plain += text[i];
  }
  return plain;
}

// A whole number of at least 0; nullopt if the key is missing or null.
absl::StatusOr<std::optional<int64_t>> CountOf(const json& state, const char* key,
                                               const std::string& path) {
  const auto found = state.find(key);
  if (found == state.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_integer() || *found < 0 || *found > INT64_MAX) {
    return absl::InvalidArgumentError(
        StrCat(Quoted(path), ": ", key, " is ", Quoted(found->dump()), ", not a number of steps"));
  }
  return found->get<int64_t>();
}

}  // namespace

absl::StatusOr<TrainerState> ParseTrainerState(std::string_view text, const std::string& path) {
  const json state = json::parse(WithoutNonFinite(text), nullptr, /*allow_exceptions=*/false);
  if (!state.is_object()) {
    return absl::InvalidArgumentError(StrCat(Quoted(path), " is not a JSON object"));
  }
  TrainerState parsed;
  const auto step = CountOf(state, "global_step", path);
  if (!step.ok()) return step.status();
  if (!*step) return absl::InvalidArgumentError(StrCat(Quoted(path), " has no global_step"));
  parsed.step = **step;
  const auto tokens = CountOf(state, "num_input_tokens_seen", path);
  if (!tokens.ok()) return tokens.status();
  if (*tokens && **tokens > 0) parsed.tokens = **tokens;

  std::map<int64_t, double> rates;
  const auto history = state.find("log_history");
  if (history != state.end() && history->is_array()) {
    for (const json& entry : *history) {
      if (!entry.is_object() || !entry.contains("step") || !entry.contains("learning_rate"))
        continue;
      const json& at = entry["step"];
      const json& rate = entry["learning_rate"];
      if (!at.is_number_integer() || !rate.is_number() || at > parsed.step || at < 0) continue;
      rates[at.get<int64_t>()] = rate.get<double>();
    }
  }
  for (const auto& [at, rate] : rates) parsed.rates.push_back({at, rate});
  return parsed;
}

}  // namespace ptqwatch::internal
