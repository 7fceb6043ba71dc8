#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/strings.h"
#include "ptqwatch/config.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "quantize/methods.h"

namespace ptqwatch {
namespace {

using nlohmann::json;

json CompressedTensorsConfig(const QuantizerSpec& spec, const std::vector<std::string>& left_out) {
  const bool grouped = spec.group_size > 0;
  const bool ordered =
      internal::MethodOf(spec).factor && spec.order == QuantizationOrder::kStaticAct;
  json weights = {
      {"num_bits", spec.bits},
      {"type", "int"},
      {"symmetric", spec.symmetric},
      {"strategy", grouped ? "group" : "channel"},
      {"group_size", grouped ? json(spec.group_size) : json(nullptr)},
      {"dynamic", false},
      {"actorder", ordered ? json("weight") : json(nullptr)},
  };
  return {
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"quantization_status", "compressed"},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights", std::move(weights)},
          {"input_activations", nullptr},
          {"output_activations", nullptr},
          {"format", "pack-quantized"}}}}},
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
json GptqConfig(const QuantizerSpec& spec, const std::vector<std::string>& left_out) {
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
  return config;
}

}  // namespace

std::string QuantizationConfigJson(CheckpointFormat format, const QuantizerSpec& spec,
                                   const std::vector<std::string>& left_out) {
  const json config = format == CheckpointFormat::kGptqV2 ? GptqConfig(spec, left_out)
                                                          : CompressedTensorsConfig(spec, left_out);
  return config.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace ptqwatch
