#include "trajectory/checkpoint_name.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/numbers.h"

namespace ptqwatch::internal {
namespace {

// A word that ends in another stands before it.
constexpr std::string_view kStepWords[] = {"global_step", "step", "checkpoint", "ckpt", "iter"};
constexpr std::string_view kDigits = "0123456789";
constexpr double kMostTokens = 9e18;

bool IsSeparator(char c) { return c == '-' || c == '_'; }

// Removes the digits at the beginning of `text`; nullopt if there are none or they do not fit.
std::optional<int64_t> TakeNumber(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of(kDigits), text.size());
  int64_t number = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), end), &number)) return std::nullopt;
  text.remove_prefix(end);
  return number;
}

// "210B", "2.5M", "1000".
std::optional<int64_t> TokensOf(std::string_view text) {
  double unit = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K':
        unit = 1e3;
        break;
      case 'M':
        unit = 1e6;
        break;
      case 'B':
        unit = 1e9;
        break;
      case 'T':
        unit = 1e12;
        break;
      default:
        break;
    }
  }
  if (unit > 1) text.remove_suffix(1);
  double amount = 0;
  if (text.find_first_not_of("0123456789.") != std::string_view::npos ||
      !absl::SimpleAtod(absl::string_view(text.data(), text.size()), &amount) ||
      amount * unit > kMostTokens) {
    return std::nullopt;
  }
  return std::llround(amount * unit);
}

// The name without its branch: `word` and what follows.
std::optional<CheckpointName> ParseStep(std::string_view text, std::string_view word) {
  text.remove_prefix(word.size());
  if (!text.empty() && IsSeparator(text.front())) text.remove_prefix(1);
  const std::optional<int64_t> step = TakeNumber(text);
  if (!step) return std::nullopt;
  CheckpointName name{.branch = {}, .step = *step, .tokens = {}};
  if (text.empty()) return name;
  if (!IsSeparator(text.front()) || !text.substr(1).starts_with("tokens")) return std::nullopt;
  text.remove_prefix(1 + std::string_view("tokens").size());
  name.tokens = TokensOf(text);
  if (!name.tokens) return std::nullopt;
  return name;
}

}  // namespace

std::optional<CheckpointName> ParseCheckpointName(std::string_view name) {
  for (const std::string_view word : kStepWords) {
    for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
      if (at > 0 && !IsSeparator(name[at - 1])) continue;
      if (at == 1) continue;  // a separator alone is no branch
      std::optional<CheckpointName> parsed = ParseStep(name.substr(at), word);
      if (!parsed) continue;
      if (at > 0) parsed->branch = std::string(name.substr(0, at - 1));
      return parsed;
    }
  }
  return std::nullopt;
}

}  // namespace ptqwatch::internal
