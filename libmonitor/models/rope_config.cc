#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "base/enum_names.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kRopeTypes[] = {"default", "linear", "llama3", "yarn", "longrope"};
constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kWindowed = "sliding_attention";
constexpr std::string_view kOriginal = "original_max_position_embeddings";

// Keys of the config beside the object of parameters.
struct RopeDefaults {
  double theta = 0;
  double rotary_part = 1;
};

absl::StatusOr<RopeDefaults> ReadDefaults(const ConfigReader& config, const ModelFamily& family) {
  RopeDefaults defaults;
  PTQWATCH_ASSIGN_OR_RETURN(defaults.theta, config.Positive(family.theta_key, family.theta));
  const std::string_view key =
      family.rotary_key.empty() ? "partial_rotary_factor" : family.rotary_key;
  // transformers then turns whole heads, or fails.
  if (family.rotary_part != 1 && config.IsNull(key)) {
    return config.Error(key, "is null; a number is needed");
  }
  PTQWATCH_ASSIGN_OR_RETURN(defaults.rotary_part, config.Positive(key, family.rotary_part));
  return defaults;
}

// How many dimensions of a head turn. transformers rounds the part down and pairs up the rest.
absl::StatusOr<int64_t> RotatedDims(const ConfigReader& config, const ModelFamily& family,
                                    double part, int64_t head_dim) {
  if (part != 1 && family.rotary_key.empty()) {
    return config.Error("partial_rotary_factor",
                        StrCat("is ", part, "; a ", family.model_type, " rotates whole heads"));
  }
  const auto dims = static_cast<int64_t>(static_cast<double>(head_dim) * std::min(part, 1.0));
  if (part > 1 || dims + dims % 2 > head_dim) {
    return config.Error(family.rotary_key.empty() ? "head_dim" : family.rotary_key,
                        StrCat("gives ", part, " * ", head_dim,
                               " dimensions to rotate; an even number up to the head's is needed"));
  }
  return dims;
}

// A factor of YaRN's for attention; `mscale` weights its logarithm.
double YarnScale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

absl::Status ReadYarn(const ConfigReader& parameters, RopeConfig& rope) {
  PTQWATCH_ASSIGN_OR_RETURN(rope.beta_fast, parameters.Positive("beta_fast", 32));
  PTQWATCH_ASSIGN_OR_RETURN(rope.beta_slow, parameters.Positive("beta_slow", 1));
  if (rope.dims % 2 != 0) {
    return parameters.Error("rope_type", StrCat("is \"yarn\", which turns pairs of dimensions; ",
                                                rope.dims, " are to be turned"));
  }
  if (rope.theta == 1) return parameters.WrongValue("rope_theta", "yarn needs another base");
  PTQWATCH_ASSIGN_OR_RETURN(rope.truncate, parameters.Flag("truncate", true));
  double scale = YarnScale(rope.factor, 1);
  if (parameters.Has("mscale") && parameters.Has("mscale_all_dim")) {
    PTQWATCH_ASSIGN_OR_RETURN(const double mscale, parameters.Positive("mscale"));
    PTQWATCH_ASSIGN_OR_RETURN(const double all_dim, parameters.Positive("mscale_all_dim"));
    scale = YarnScale(rope.factor, mscale) / YarnScale(rope.factor, all_dim);
  }
  PTQWATCH_ASSIGN_OR_RETURN(rope.attention_factor, parameters.Positive("attention_factor", scale));
  return absl::OkStatus();
}

// LongRoPE, arXiv:2402.13753.
absl::Status ReadLongRope(const ConfigReader& parameters, int64_t context, RopeConfig& rope) {
  const auto pairs = static_cast<size_t>((rope.dims + 1) / 2);
  for (const auto& [key, factors] :
       {std::pair("short_factor", &rope.short_factors), {"long_factor", &rope.long_factors}}) {
    PTQWATCH_ASSIGN_OR_RETURN(*factors, parameters.Positives(key));
    if (factors->size() == pairs) continue;
    return parameters.Error(
        key, StrCat("has ", factors->size(), " elements for ", pairs, " pairs of dimensions"));
  }
  const auto original = static_cast<double>(rope.original_context);
  PTQWATCH_ASSIGN_OR_RETURN(rope.factor,
                            parameters.Positive("factor", static_cast<double>(context) / original));
  double scale = 1;
  if (rope.factor > 1) {
    if (rope.original_context == 1) return parameters.Error(kOriginal, "is 1; more is needed");
    scale = std::sqrt(1 + std::log(rope.factor) / std::log(original));
  }
  PTQWATCH_ASSIGN_OR_RETURN(rope.attention_factor, parameters.Positive("attention_factor", scale));
  return absl::OkStatus();
}

// NTK-aware scaling with a fixed alpha stretches the base alone, whatever the type is called.
absl::Status ReadNtk(const ConfigReader& parameters, int64_t head_dim, RopeConfig& rope) {
  PTQWATCH_ASSIGN_OR_RETURN(const double alpha, parameters.Positive("alpha"));
  if (head_dim <= 2) return parameters.WrongValue("alpha", "a head_dim above 2 is needed");
  const auto dims = static_cast<double>(head_dim);
  rope.theta *= std::pow(alpha, dims / (dims - 2));
  return absl::OkStatus();
}

// `parameters`: rope_parameters or rope_scaling, if there is one.
absl::StatusOr<RopeConfig> ReadOne(const ConfigReader& config,
                                   const std::optional<ConfigReader>& parameters,
                                   const ModelFamily& family, const RopeDefaults& defaults,
                                   int64_t head_dim, int64_t context) {
  RopeConfig rope;
  double part = defaults.rotary_part;
  rope.theta = defaults.theta;
  rope.interleaved = family.interleaved_rope;
  std::string type = "default";
  if (parameters) {
    PTQWATCH_ASSIGN_OR_RETURN(rope.theta, parameters->Positive("rope_theta", rope.theta));
    PTQWATCH_ASSIGN_OR_RETURN(part, parameters->Positive("partial_rotary_factor", part));
    PTQWATCH_ASSIGN_OR_RETURN(type, parameters->Text("type", type));
    PTQWATCH_ASSIGN_OR_RETURN(type, parameters->Text("rope_type", type));
  }
  if (family.ntk_rope && type == "dynamic") {
    PTQWATCH_RETURN_IF_ERROR(ReadNtk(*parameters, head_dim, rope));
    type = "default";
  }
  if (family.phi3_rope && (type == "su" || type == "yarn")) type = "longrope";
  PTQWATCH_ASSIGN_OR_RETURN(rope.dims, RotatedDims(config, family, part, head_dim));
  const std::optional<RopeScaling> scaling = EnumValue<RopeScaling>(kRopeTypes, type);
  if (!scaling) {
    return parameters->Error(parameters->Has("rope_type") ? "rope_type" : "type",
                             StrCat("is \"", type, "\"; known are ", ListOf(kRopeTypes)));
  }
  rope.scaling = *scaling;
  if (rope.scaling == RopeScaling::kNone) return rope;
  if (rope.scaling != RopeScaling::kLongRope) {
    PTQWATCH_ASSIGN_OR_RETURN(rope.factor, parameters->Positive("factor"));
    if (rope.scaling == RopeScaling::kLinear) return rope;
  }
  PTQWATCH_ASSIGN_OR_RETURN(rope.original_context, parameters->Size(kOriginal, context));
  // transformers passes over it there.
  if (family.rope_of_layer_type && config.Has(kOriginal)) {
    return config.Error(kOriginal, "is there; its place is beside the type of scaling");
  }
  if (family.original_context > 0) rope.original_context = family.original_context;
  PTQWATCH_ASSIGN_OR_RETURN(rope.original_context, config.Size(kOriginal, rope.original_context));
  if (rope.scaling == RopeScaling::kLongRope) {
    PTQWATCH_RETURN_IF_ERROR(ReadLongRope(*parameters, context, rope));
    return rope;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    PTQWATCH_RETURN_IF_ERROR(ReadYarn(*parameters, rope));
    return rope;
  }
  PTQWATCH_ASSIGN_OR_RETURN(rope.low_freq_factor, parameters->Positive("low_freq_factor"));
  PTQWATCH_ASSIGN_OR_RETURN(rope.high_freq_factor, parameters->Positive("high_freq_factor"));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return parameters->WrongValue("high_freq_factor", "more than low_freq_factor is needed");
  }
  return rope;
}

// Llama 3.1's own numbers.
void ScaleLikeLlama3(RopeConfig& rope) {
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 8192;
}

// gpt-oss's own numbers.
void ScaleLikeGptOss(RopeConfig& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 32;
  rope.beta_fast = 32;
  rope.beta_slow = 1;
  rope.truncate = false;
  rope.original_context = 4096;
  rope.attention_factor = YarnScale(rope.factor, 1);
}

}  // namespace

absl::StatusOr<RopeConfigs> ReadRope(const ConfigReader& config, const ModelFamily& family,
                                     int64_t head_dim, int64_t context) {
  PTQWATCH_ASSIGN_OR_RETURN(const RopeDefaults defaults, ReadDefaults(config, family));
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<ConfigReader> scaling,
                            config.Object("rope_scaling"));
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<ConfigReader> own,
                            config.Object("rope_parameters"));
  const auto by_layer_type = [](const std::optional<ConfigReader>& parameters) {
    return parameters && (parameters->Has(kFull) || parameters->Has(kWindowed));
  };
  if (by_layer_type(scaling)) {
    return scaling->Error(scaling->Has(kFull) ? kFull : kWindowed,
                          "is there; its place is in rope_parameters");
  }
  const bool nested = by_layer_type(own);
  RopeDefaults local = defaults;
  if (family.rope_of_layer_type) {
    if (own && scaling) {
      return config.Error("rope_parameters", "is there beside rope_scaling; one alone is needed");
    }
    if (own && !nested) {
      return config.Error("rope_parameters", StrCat("has neither ", kFull, " nor ", kWindowed));
    }
    // transformers passes over the older name here.
    if (scaling && scaling->Has("type") && !scaling->Has("rope_type")) {
      return scaling->Error(
          "type", StrCat("is there without rope_type, which a ", family.model_type, " needs"));
    }
    if (family.local_theta > 0) {
      PTQWATCH_ASSIGN_OR_RETURN(local.theta,
                                config.Positive("rope_local_base_freq", family.local_theta));
    } else if (defaults.theta != family.theta) {
      // transformers 5 gives it to layers without a window alone, transformers 4 to all.
      return config.WrongValue(
          family.theta_key, StrCat("only ", family.theta, " is known outside of rope_parameters.",
                                   kFull, " and rope_parameters.", kWindowed));
    }
  }
  if (nested && !family.rope_of_layer_type) {
    return own->Error(
        own->Has(kFull) ? kFull : kWindowed,
        StrCat("is there, but a ", family.model_type, " has one rotary embedding for all layers"));
  }
  std::optional<ConfigReader> full = scaling ? scaling : own;
  std::optional<ConfigReader> windowed = full;
  if (nested) {
    PTQWATCH_ASSIGN_OR_RETURN(windowed, own->Object(kWindowed));
    PTQWATCH_ASSIGN_OR_RETURN(const std::optional<ConfigReader> nested_full, own->Object(kFull));
    if (!scaling) full = nested_full;
  }
  RopeConfigs ropes;
  PTQWATCH_ASSIGN_OR_RETURN(ropes.full, ReadOne(config, full, family, defaults, head_dim, context));
  PTQWATCH_ASSIGN_OR_RETURN(ropes.windowed,
                            ReadOne(config, windowed, family, local, head_dim, context));
  if (family.rope_of_layer_type && !nested) {
    ropes.windowed = {
        .dims = ropes.full.dims, .interleaved = ropes.full.interleaved, .theta = local.theta};
  }
  // An explicit null is how transformers 4 says that the model has no scaling.
  if (family.llama3_rope && !full && !config.IsNull("rope_scaling")) {
    ScaleLikeLlama3(ropes.full);
    ropes.windowed = ropes.full;
  }
  if (family.yarn_rope && !full && !config.Has("rope_parameters")) {
    ScaleLikeGptOss(ropes.full);
    ropes.windowed = ropes.full;
  }
  return ropes;
}

}  // namespace ptqwatch::internal
