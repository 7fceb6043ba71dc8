#include "flags.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "base/glob.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::tools {
namespace {

using internal::Message;
using internal::StrCat;

constexpr int kUsageExitCode = 2;

// Adds an option that takes the names of a library enum.
template <typename T>
void AddEnum(CLI::App& app, const std::string& name, T* value,
             absl::StatusOr<T> (*parse)(std::string_view), const std::string& help) {
  app.add_option_function<std::string>(
         name, [value, parse](const std::string& text) { *value = *parse(text); }, help)
      ->check(CLI::Validator(
          [parse](std::string& text) { return std::string(Message(parse(text).status())); }, ""))
      ->default_str(std::string(ToString(*value)));
}

void AddSwitch(CLI::App& app, const std::string& name, bool* value, const std::string& help) {
  app.add_option_function<std::string>(
         name, [value](const std::string& text) { *value = text == "on"; }, help)
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str(*value ? "on" : "off");
}

void AddSpec(CLI::App& app, QuantizerSpec* spec) {
  AddEnum(app, "--method", &spec->method, &ParseQuantizationMethod,
          "Method whose codes the format can hold, such as rtn and gptq");
  app.add_option("--bits", spec->bits, "Bits of a code: 2 to 8")->capture_default_str();
  app.add_option("--group-size", spec->group_size, "Inputs that share a scale; -1: a whole row")
      ->capture_default_str();
  app.add_option("--group-rows", spec->group_rows,
                 "fp8: rows that share a scale, as many as the group size; -1: all")
      ->capture_default_str();
  AddEnum(app, "--scale-rule", &spec->scale_rule, &ParseScaleRule,
          "mxfp4, mxfp8: how a block's power of two is chosen: floor, even or rceil");
  AddSwitch(app, "--symmetric", &spec->symmetric,
            "Grids around zero (on) or between the extremes of each group (off)");
  AddSwitch(app, "--narrow-range", &spec->narrow_range,
            "As many steps on either side of zero: codes from 1 (on), or from 0 (off)");
  AddEnum(app, "--order", &spec->order, &ParseQuantizationOrder,
          "Order of the columns in GPTQ: by activity (act) or unchanged (none)");
  app.add_option("--damp", spec->damp, "GPTQ: damping, relative to the mean diagonal of H")
      ->capture_default_str();
  AddEnum(app, "--clip", &spec->clip, &ParseClipSearch,
          "The range of a grid: the largest weight (none), less if that lowers the error (mse), or "
          "what --clip-value says: a percentile of the magnitudes (percentile), or a number of "
          "standard deviations (std)");
  app.add_option("--clip-value", spec->clip_value,
                 "With --clip percentile, above 0 and up to 100; with std, above 0")
      ->capture_default_str();
  AddEnum(app, "--scale-dtype", &spec->scale_dtype, &ParseScaleDtype,
          "Type of stored scales: f16, or bf16 (compressed-tensors)");
  AddSwitch(app, "--round-scale-last", &spec->round_scale_last,
            "rtn: codes from the float32 scale (on), or from the stored one (off)");
  app.add_option("--min-scale", spec->min_scale, "No scale is smaller")->capture_default_str();
}

// A format of files, or a format of numbers, which compressed-tensors holds.
absl::Status SetFormat(std::string_view text, Flags* flags) {
  const auto file = ParseCheckpointFormat(text);
  const auto numbers = ParseQuantizationFormat(text);
  if (!file.ok() && !numbers.ok()) {
    return absl::InvalidArgumentError(
        StrCat(Message(file.status()), "; ", Message(numbers.status())));
  }
  flags->format = file.value_or(CheckpointFormat::kCompressedTensors);
  flags->spec.format = numbers.value_or(QuantizationFormat::kInt);
  return absl::OkStatus();
}

void AddFormat(CLI::App& app, Flags* flags) {
  app.add_option_function<std::string>(
         "--format", [flags](const std::string& text) { SetFormat(text, flags).IgnoreError(); },
         "compressed-tensors or gptq-v2 for integers, or a format of numbers such as nvfp4, which "
         "compressed-tensors holds")
      ->check(CLI::Validator(
          [](std::string& text) {
            Flags ignored;
            return std::string(Message(SetFormat(text, &ignored)));
          },
          ""))
      ->default_str(std::string(ToString(flags->format)));
}

void AddFiles(CLI::App& app, Flags* flags) {
  app.add_option("--weights", flags->weights,
                 "The checkpoint; a config.json beside it is copied and extended")
      ->required();
  app.add_option("--inputs", flags->inputs,
                 "Safetensors file with the inputs [tokens, d] of the layers, named as the layer, "
                 "with or without .weight");
  app.add_option("--out", flags->out, "Folder for model.safetensors and config.json")->required();
  app.add_flag("--force", flags->force, "Replace existing files in the folder");
}

void AddLayers(CLI::App& app, Flags* flags) {
  app.add_option("--layers", flags->layers,
                 "Which layers: a pattern with * and ? for the name without .weight [all that have "
                 "inputs]");
  app.add_option("--exclude", flags->exclude, "Pattern of layers to leave unchanged; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--input-map", flags->input_map,
                 "LAYER=INPUTS, each with at most one *: these layers use those inputs, e.g. "
                 "*.k_proj=*.q_proj; repeatable, the first match wins")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

// Converts "QuantizerSpec.group_size is 0; ..." to a message about the option: "--group-size is 0;
// ...".
std::string AboutOption(std::string_view message) {
  constexpr std::string_view kPrefix = "QuantizerSpec.";
  if (!message.starts_with(kPrefix)) return std::string(message);
  std::string text = StrCat("--", message.substr(kPrefix.size()));
  std::replace(text.begin(), text.begin() + static_cast<int64_t>(text.find(' ')), '_', '-');
  return text;
}

// Reads "*.mlp.*=5" into a copy of the spec with so many bits.
absl::Status AddOverride(const std::string& text, Flags* flags) {
  const size_t equals = text.rfind('=');
  SpecOverride given{.layers = text.substr(0, equals), .spec = flags->spec};
  if (equals == std::string::npos || equals == 0 ||
      !absl::SimpleAtoi(text.substr(equals + 1), &given.spec.bits)) {
    return absl::InvalidArgumentError("must be LAYER=BITS");
  }
  PTQWATCH_RETURN_IF_ERROR(Validate(given.spec));
  // Every format accepts this shape, so a refusal is about the combination of options.
  const int64_t cols = int64_t{32} * std::max(1, given.spec.group_size);
  PTQWATCH_RETURN_IF_ERROR(CheckPackable(flags->format, given.spec, 32, cols));
  flags->overrides.push_back(std::move(given));
  return absl::OkStatus();
}

// Sets the options of a floating-point format that were not given.
void CompleteFormat(const CLI::App& app, QuantizerSpec* spec) {
  if (spec->format == QuantizationFormat::kInt) return;
  if (app.count("--bits") == 0) spec->bits = FixedBits(spec->format).value_or(spec->bits);
  if (app.count("--group-size") == 0) spec->group_size = -1;
  if (app.count("--scale-dtype") == 0) spec->scale_dtype = ScaleDtype::kFloat32;
}

std::optional<int> Check(const Flags& flags) {
  if (const absl::Status valid = Validate(flags.spec); !valid.ok()) {
    return FailWithUsage(AboutOption(Message(valid)));
  }
  if (NeedsStatistics(flags.spec) && flags.inputs.empty()) {
    return FailWithUsage(StrCat("--inputs: missing; --method ", ToString(flags.spec.method),
                                " needs the inputs of the layers"));
  }
  if (flags.inputs.empty() && flags.layers.empty()) {
    return FailWithUsage("--layers: missing; without --inputs it is needed to select the layers");
  }
  // Every format accepts this shape, so a refusal is about the combination of options.
  const int64_t cols = int64_t{32} * std::max(1, flags.spec.group_size);
  if (const absl::Status fits = CheckPackable(flags.format, flags.spec, 32, cols); !fits.ok()) {
    return FailWithUsage(StrCat("--format ", ToString(flags.format), ": ", fits));
  }
  return std::nullopt;
}

}  // namespace

void Warn(std::string_view message) {
  std::cerr << StrCat("quantize_checkpoint: ", message, "\n") << std::flush;
}

int FailWithUsage(std::string_view message) {
  Warn(message);
  return kUsageExitCode;
}

std::optional<int> ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app(
      "Quantizes the matrices of a safetensors checkpoint, layer by layer, and writes a checkpoint "
      "that other programs can read. Exit code 0: done; 1: reading or writing failed; 2: a mistake "
      "in "
      "the options; 3: done, but a layer could not be quantized and was copied; 130 and 143: "
      "stopped by a signal, nothing was written.");
  flags->spec.scale_dtype = ScaleDtype::kFloat16;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  AddFiles(app, flags);
  AddSpec(app, &flags->spec);
  AddFormat(app, flags);
  AddLayers(app, flags);
  std::vector<std::string> overrides;
  app.add_option("--override", overrides,
                 "LAYER=BITS: layers that match this pattern have so many bits, e.g. *.mlp.*=5; "
                 "repeatable, the first match wins")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--threads", flags->threads, "Threads to compute with")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& error) {
    return FailWithUsage(error.what());
  }
  CompleteFormat(app, &flags->spec);
  if (const std::optional<int> mistake = Check(*flags)) return mistake;
  for (const std::string& text : overrides) {
    if (const absl::Status status = AddOverride(text, flags); !status.ok()) {
      return FailWithUsage(StrCat("--override: '", text, "': ", status));
    }
  }
  return std::nullopt;
}

const QuantizerSpec& Flags::SpecFor(const std::string& module) const {
  for (const SpecOverride& given : overrides) {
    if (internal::GlobMatch(given.layers, module)) return given.spec;
  }
  return spec;
}

}  // namespace ptqwatch::tools
