#include "quantize_flags.h"

#include <algorithm>
#include <cstdint>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "flag_checks.h"
#include "parse_flags.h"

namespace ptqwatch::examples {
namespace {

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// An option whose values a Parse function of the library knows.
template <typename T, typename Parse>
void AddParsed(CLI::App& app, const std::string& name, T* value, Parse parse,
               const std::string& help, const std::string& usual) {
  app.add_option_function<std::string>(
         name, [value, parse](const std::string& text) { *value = *parse(text); }, help)
      ->check(CLI::Validator(
          [parse](std::string& text) {
            const auto parsed = parse(text);
            return parsed.ok() ? std::string() : Message(parsed.status());
          },
          ""))
      ->default_str(usual);
}

void AddSpec(CLI::App& app, QuantizerSpec* spec) {
  AddParsed(
      app, "--method", &spec->method,
      [](const std::string& s) { return ParseQuantizationMethod(s); }, "rtn or gptq", "gptq");
  app.add_option("--bits", spec->bits, "Bits of a code")
      ->check(OneOf({"2", "3", "4", "8"}))
      ->capture_default_str();
  app.add_option("--group-size", spec->group_size, "Inputs that share a scale; -1: a whole row")
      ->check(CLI::Validator(
          [](std::string& text) { return text == "-1" ? std::string() : IntegerAtLeast(1)(text); },
          ">=1 or -1"))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--symmetric", [spec](const std::string& value) { spec->symmetric = value == "on"; },
         "Grids around zero (on) or between the extremes of each group (off)")
      ->check(OneOf({"on", "off"}))
      ->default_str("on");
  app.add_option_function<std::string>(
         "--order",
         [spec](const std::string& value) {
           spec->order = value == "act" ? QuantizationOrder::kStaticAct : QuantizationOrder::kNone;
         },
         "Order in which GPTQ takes the columns: by activity (act) or as they are (none)")
      ->check(OneOf({"act", "none"}))
      ->default_str("act");
  app.add_option("--damp", spec->damp, "GPTQ: damping, relative to the mean diagonal of H")
      ->check(RealBetween(0, 1e6))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--clip",
         [spec](const std::string& value) {
           spec->clip = value == "mse" ? ClipSearch::kMse : ClipSearch::kNone;
         },
         "Shrink grids where that lowers the error (mse) or never (none)")
      ->check(OneOf({"none", "mse"}))
      ->default_str("none");
  AddParsed(
      app, "--scale-dtype", &spec->scale_dtype,
      [](const std::string& s) { return ParseScaleDtype(s); },
      "What scales are stored as: f16, or bf16 (compressed-tensors)", "f16");
}

}  // namespace

std::optional<int> ParseQuantizeFlags(int argc, char** argv, QuantizeFlags* flags) {
  CLI::App app(
      "Quantizes the matrices of a safetensors checkpoint, layer by layer, and writes a checkpoint "
      "that other programs read. Exit code 0: done; 1: reading or writing failed; 2: a mistake in "
      "the options; 3: done, but a layer could not be quantized and was copied; 130 and 143: "
      "stopped by a signal, nothing was written.");
  flags->spec.scale_dtype = ScaleDtype::kFloat16;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--weights", flags->weights,
                 "The checkpoint; a config.json beside it is taken over")
      ->required();
  app.add_option("--inputs", flags->inputs,
                 "Safetensors file with the inputs [tokens, d] of the layers, named as the layer, "
                 "with or without .weight");
  app.add_option("--out", flags->out, "Folder for model.safetensors and config.json")->required();
  AddSpec(app, &flags->spec);
  AddParsed(
      app, "--format", &flags->format,
      [](const std::string& s) { return ParseCheckpointFormat(s); },
      "compressed-tensors or gptq-v2", "compressed-tensors");
  app.add_option("--layers", flags->layers,
                 "Which layers: a pattern with * and ? for the name without .weight [all that have "
                 "inputs]");
  app.add_option("--exclude", flags->exclude, "Layers to leave as they are: a pattern, repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--input-map", flags->input_map,
                 "LAYER=INPUTS, each with at most one *: these layers use those inputs, e.g. "
                 "*.k_proj=*.q_proj; repeatable, the first that fits counts")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--threads", flags->threads, "Threads to compute with")
      ->check(IntegerAtLeast(1))
      ->capture_default_str();
  app.add_flag("--force", flags->force, "Replace what is already in the folder");
  if (const auto exit_code = ParseFlags(app, argc, argv)) return exit_code;

  if (flags->spec.method == QuantizationMethod::kGptq && flags->inputs.empty()) {
    return FailWithUsage("--inputs: missing; --method gptq needs the inputs of the layers");
  }
  if (flags->inputs.empty() && flags->layers.empty()) {
    return FailWithUsage(
        "--layers: missing; without --inputs it has to say which matrices are layers");
  }
  // With a shape that suits every format, what is refused is the combination of options.
  const int64_t cols = int64_t{32} * std::max(1, flags->spec.group_size);
  if (const absl::Status fits = CheckPackable(flags->format, flags->spec, 32, cols); !fits.ok()) {
    return FailWithUsage(
        absl::StrCat("--format ", std::string(ToString(flags->format)), ": ", Message(fits)));
  }
  return std::nullopt;
}

}  // namespace ptqwatch::examples
