#include "layer_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/glob.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::tools {
namespace {

using internal::StrCat;

constexpr std::string_view kWeight = ".weight";
// Tensors that the formats add to a module.
constexpr const char* kPackedNames[] = {"weight_packed",
                                        "weight_scale",
                                        "weight_global_scale",
                                        "weight_shape",
                                        "weight_zero_point",
                                        "qweight",
                                        "qzeros",
                                        "scales",
                                        "g_idx"};

bool IsExcluded(const Flags& flags, const std::string& module) {
  return std::any_of(flags.exclude.begin(), flags.exclude.end(), [&](const std::string& pattern) {
    return internal::GlobMatch(pattern, module);
  });
}

// One --input-map.
struct InputRule {
  std::string modules;
  std::string inputs;

  // The name of the inputs of `module` if the rule applies to it.
  std::optional<std::string> Apply(const std::string& module) const {
    const size_t star = modules.find('*');
    if (star == std::string::npos) {
      if (module != modules) return std::nullopt;
      return inputs;
    }
    const std::string_view head = std::string_view(modules).substr(0, star);
    const std::string_view tail = std::string_view(modules).substr(star + 1);
    const std::string_view name = module;
    if (name.size() < head.size() + tail.size() || !name.starts_with(head) ||
        !name.ends_with(tail)) {
      return std::nullopt;
    }
    std::string result = inputs;
    if (const size_t at = result.find('*'); at != std::string::npos) {
      result.replace(at, 1, name.substr(head.size(), name.size() - head.size() - tail.size()));
    }
    return result;
  }
};

absl::StatusOr<std::vector<InputRule>> ParseRules(const std::vector<std::string>& texts) {
  std::vector<InputRule> rules;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const auto stars = [](const std::string& part) {
      return std::count(part.begin(), part.end(), '*');
    };
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return absl::InvalidArgumentError(StrCat("--input-map: '", text, "' is not LAYER=INPUTS"));
    }
    InputRule rule{.modules = text.substr(0, equals), .inputs = text.substr(equals + 1)};
    if (stars(rule.modules) > 1 || stars(rule.inputs) > stars(rule.modules)) {
      return absl::InvalidArgumentError(
          StrCat("--input-map: '", text,
                 "' has more than one * on a side, or one on the right side only"));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::string FindInputs(const std::vector<InputRule>& rules, const SafetensorsFile& inputs,
                       const std::string& module) {
  std::string name = module;
  for (const InputRule& rule : rules) {
    if (const std::optional<std::string> mapped = rule.Apply(module)) {
      name = *mapped;
      break;
    }
  }
  for (const std::string& candidate : {name, StrCat(name, ".weight")}) {
    if (inputs.Find(candidate) != nullptr) return candidate;
  }
  return "";
}

absl::Status CheckInputs(const LayerPlan& layer, const SafetensorsFile& inputs) {
  const TensorInfo& info = *inputs.Find(layer.inputs);
  if (IsConvertibleToFloat(info.dtype) && info.shape.size() >= 2 &&
      info.shape.back() == layer.cols) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("--inputs: '", layer.inputs, "' in ", inputs.path(),
                                           " is ", info.Describe(), "; layer ", layer.module,
                                           " needs real numbers [tokens, ", layer.cols, "]"));
}

// "c_proj" of "h.0.attn.c_proj".
std::string_view LastName(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// The last names of modules whose matrix is [inputs, outputs] by the size of their bias. A square
// matrix does not tell, but others of its name do.
std::set<std::string_view> TransposedNames(const SafetensorsFile& weights) {
  std::set<std::string_view> names;
  for (const auto& [name, info] : weights.tensors()) {
    if (!name.ends_with(kWeight) || info.shape.size() != 2) continue;
    const std::string_view module = std::string_view(name).substr(0, name.size() - kWeight.size());
    const TensorInfo* bias = weights.Find(StrCat(module, ".bias"));
    if (bias == nullptr || info.shape[0] == info.shape[1]) continue;
    if (bias->shape == std::vector<int64_t>{info.shape[1]}) names.insert(LastName(module));
  }
  return names;
}

// Whether a layer is chosen by its name.
bool IsChosen(const Flags& flags, const std::string& module) {
  return !IsExcluded(flags, module) &&
         (flags.layers.empty() || internal::GlobMatch(flags.layers, module));
}

// Refuses a tensor that holds a matrix for each expert of a mixture: what is left of the model
// would look quantized.
absl::Status CheckStack(const Flags& flags, const SafetensorsFile& weights, const std::string& name,
                        const TensorInfo& info) {
  if (info.shape.size() != 3 || !IsConvertibleToFloat(info.dtype)) return absl::OkStatus();
  if (name.find("experts.") == std::string::npos && name.find("moe.") == std::string::npos) {
    return absl::OkStatus();
  }
  const std::string module =
      name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
  if (!IsChosen(flags, module)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "--weights: ", name, " in ", weights.path(), " is ", info.Describe(),
      ", the matrices of all experts of a mixture; a tensor MODULE.weight for each is needed, "
      "or use --exclude to leave them unchanged"));
}

absl::Status CheckLayer(const Flags& flags, const SafetensorsFile& weights,
                        const LayerPlan& layer) {
  if (absl::Status packable =
          CheckPackable(flags.format, flags.SpecFor(layer.module), layer.rows, layer.cols);
      !packable.ok()) {
    return absl::InvalidArgumentError(
        StrCat("layer ", layer.module, ": ", packable, "; use --exclude to leave it unchanged"));
  }
  for (const char* name : kPackedNames) {
    if (weights.Find(StrCat(layer.module, ".", name)) != nullptr) {
      return absl::InvalidArgumentError(
          StrCat("--weights: layer ", layer.module, " is already quantized: it has ", name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Flags& flags, const SafetensorsFile& weights,
                              const SafetensorsFile* inputs) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<InputRule> rules, ParseRules(flags.input_map));
  Plan plan;
  const std::set<std::string_view> transposed = TransposedNames(weights);
  std::map<std::string, size_t> first_use;  // of inputs
  for (const auto& [name, info] : weights.tensors()) {
    PTQWATCH_RETURN_IF_ERROR(CheckStack(flags, weights, name, info));
    if (!name.ends_with(kWeight) || info.shape.size() != 2 || info.elements() == 0 ||
        !IsConvertibleToFloat(info.dtype)) {
      continue;
    }
    LayerPlan layer{.module = name.substr(0, name.size() - kWeight.size()),
                    .tensor = name,
                    .inputs = "",
                    .rows = info.shape[0],
                    .cols = info.shape[1]};
    if (inputs != nullptr) layer.inputs = FindInputs(rules, *inputs, layer.module);
    const bool chosen = IsChosen(flags, layer.module);
    const bool lacks_inputs = inputs != nullptr && layer.inputs.empty();
    if (chosen && lacks_inputs) plan.without_inputs.push_back(layer.module);
    if (!chosen || lacks_inputs) {
      plan.left_out.push_back(layer.module);
      continue;
    }
    if (transposed.contains(LastName(layer.module))) {
      return absl::InvalidArgumentError(
          StrCat("--weights: layer ", layer.module, " is stored as [inputs, outputs], as GPT-2's ",
                 "are; [outputs, inputs] is needed, or use --exclude"));
    }
    if (inputs != nullptr) {
      PTQWATCH_RETURN_IF_ERROR(CheckInputs(layer, *inputs));
      first_use.emplace(layer.inputs, plan.layers.size());
    }
    PTQWATCH_RETURN_IF_ERROR(CheckLayer(flags, weights, layer));
    plan.layers.push_back(std::move(layer));
  }
  if (plan.layers.empty()) {
    return absl::InvalidArgumentError(
        StrCat("--weights: ", weights.path(), " has no matrix MODULE.weight that ",
               flags.layers.empty() ? "" : StrCat("matches --layers ", flags.layers, " and "),
               inputs != nullptr ? "has inputs" : "is not excluded"));
  }
  for (const SpecOverride& given : flags.overrides) {
    const auto matches = [&](const LayerPlan& layer) {
      return internal::GlobMatch(given.layers, layer.module);
    };
    if (std::any_of(plan.layers.begin(), plan.layers.end(), matches)) continue;
    return absl::InvalidArgumentError(StrCat("--override: '", given.layers,
                                             "' matches no module that is quantized; the names of "
                                             "modules have no .weight"));
  }
  std::stable_sort(plan.layers.begin(), plan.layers.end(),
                   [&](const LayerPlan& a, const LayerPlan& b) {
                     return first_use[a.inputs] < first_use[b.inputs];
                   });
  return plan;
}

}  // namespace ptqwatch::tools
