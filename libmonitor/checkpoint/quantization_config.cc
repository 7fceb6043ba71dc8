#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "ptqwatch/config.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "quantize/kernels/number_format.h"
#include "quantize/methods.h"

namespace ptqwatch {
namespace {

using nlohmann::json;

json GroupOf(std::string_view format, json targets, json weights) {
  return {{"targets", std::move(targets)},
          {"weights", std::move(weights)},
          {"input_activations", nullptr},
          {"output_activations", nullptr},
          {"format", format}};
}

json FloatWeights(const QuantizerSpec& spec) {
  const internal::NumberFormat& numbers = internal::NumbersOf(spec);
  json weights = {{"num_bits", spec.bits}, {"type", "float"},       {"symmetric", true},
                  {"strategy", "group"},   {"group_size", nullptr}, {"dynamic", false},
                  {"actorder", nullptr}};
  const int group_size = numbers.group_size > 0 ? numbers.group_size : spec.group_size;
  switch (numbers.scale) {
    case internal::GroupScale::kE4m3:
      weights["strategy"] = "tensor_group";
      weights["scale_dtype"] = "torch.float8_e4m3fn";
      break;
    case internal::GroupScale::kE8m0:
      weights["scale_dtype"] = "torch.uint8";
      break;
    case internal::GroupScale::kSpec:
      break;
  }
  if (spec.group_rows > 1) {
    weights["strategy"] = "block";
    weights["block_structure"] = {spec.group_rows, group_size};
  } else if (group_size > 0) {
    weights["group_size"] = group_size;
  } else {
    weights["strategy"] = spec.group_rows < 0 ? "tensor" : "channel";
  }
  return weights;
}

json WeightsOf(const QuantizerSpec& spec) {
  if (internal::NumbersOf(spec).is_float()) return FloatWeights(spec);
  const bool grouped = spec.group_size > 0;
  const bool ordered =
      internal::MethodOf(spec).factor && spec.order == QuantizationOrder::kStaticAct;
  return {
      {"num_bits", spec.bits},
      {"type", "int"},
      {"symmetric", spec.symmetric},
      {"strategy", grouped ? "group" : "channel"},
      {"group_size", grouped ? json(spec.group_size) : json(nullptr)},
      {"dynamic", false},
      {"actorder", ordered ? json("weight") : json(nullptr)},
  };
}

// Names of keys and formats are those in the presets of compressed-tensors. Readers take the group
// that names a module before the one of its class.
json CompressedTensorsConfig(const QuantizerSpec& spec, const std::vector<std::string>& left_out,
                             const std::vector<QuantizedModule>& others) {
  const std::string_view format = internal::NumbersOf(spec).checkpoint_format;
  json groups = {{"group_0", GroupOf(format, {"Linear"}, WeightsOf(spec))}};
  std::map<std::string, json> names;  // by what their weights are
  for (const QuantizedModule& module : others) {
    names[WeightsOf(module.spec).dump()].push_back(module.name);
  }
  for (const auto& [weights, modules] : names) {
    const std::string group = internal::StrCat("group_", groups.size());
    groups[group] = GroupOf(format, modules, json::parse(weights));
  }
  return {
      {"quant_method", "compressed-tensors"},
      {"format", format},
      {"quantization_status", "compressed"},
      {"config_groups", std::move(groups)},
      {"ignore", left_out},
      {"kv_cache_scheme", nullptr},
      {"global_compression_ratio", nullptr},
  };
}

std::string ExactPattern(const std::string& name) {
  std::string pattern = "^";
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

// desc_act makes readers sort columns. It is off, because groups follow the original order of the
// columns, even if GPTQ visited them in another order.
json GptqConfig(const QuantizerSpec& spec, const std::vector<std::string>& left_out,
                const std::vector<QuantizedModule>& others) {
  json config = {
      {"quant_method", "gptq"},
      {"checkpoint_format", "gptq_v2"},
      {"bits", spec.bits},
      {"group_size", spec.group_size},
      {"sym", spec.symmetric},
      {"desc_act", false},
      {"lm_head", false},
      {"pack_dtype", "int32"},
      {"meta", {{"quantizer", {internal::StrCat("ptqwatch:", PTQWATCH_VERSION_STRING)}}}},
  };
  if (internal::MethodOf(spec).factor) config["damp_percent"] = spec.damp;
  for (const std::string& name : left_out) {
    config["dynamic"]["-:" + ExactPattern(name)] = json::object();
  }
  for (const auto& [name, of_module] : others) {
    config["dynamic"]["+:" + ExactPattern(name)] = {{"bits", of_module.bits},
                                                    {"group_size", of_module.group_size},
                                                    {"sym", of_module.symmetric}};
  }
  return config;
}

}  // namespace

std::string QuantizationConfigJson(CheckpointFormat format, const QuantizerSpec& spec,
                                   const std::vector<std::string>& left_out,
                                   const std::vector<QuantizedModule>& others) {
  const json config = format == CheckpointFormat::kGptqV2
                          ? GptqConfig(spec, left_out, others)
                          : CompressedTensorsConfig(spec, left_out, others);
  return config.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace ptqwatch
