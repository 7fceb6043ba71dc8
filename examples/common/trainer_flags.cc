#include "trainer_flags.h"

#include <cstdlib>

#include "CLI/CLI.hpp"
#include "flag_checks.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::examples {
namespace {

CLI::Validator QuantizationMethodName() {
  return CLI::Validator(
      [](std::string& text) {
        const auto method = ParseQuantizationMethod(text);
        return method.ok() ? std::string() : std::string(method.status().message());
      },
      "METHOD");
}

CLI::Validator GroupSize() {
  return CLI::Validator(
      [](std::string& text) { return text == "-1" ? std::string() : IntegerAtLeast(1)(text); },
      ">=1 or -1");
}

}  // namespace

void AddTrainerFlags(CLI::App& app, TrainerFlags* flags) {
  // A script can add its user's flags after its own.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option_function<std::string>(
         "--monitor", [flags](const std::string& value) { flags->monitor = value == "on"; },
         "Watch the run (on) or only train (off)")
      ->check(OneOf({"on", "off"}))
      ->default_str("on");
  app.add_option("--every", flags->every, "Steps between snapshots [a twentieth of the run]")
      ->check(IntegerAtLeast(1));
  app.add_option("--bits", flags->bits,
                 "Bit-widths to try (llm_int8 has only 8, nf4 only 4, whatever is said here)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(OneOf({"2", "3", "4", "8"}))
      ->capture_default_str();
  app.add_option("--methods", flags->methods, "Quantization methods to try")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(QuantizationMethodName())
      ->capture_default_str();
  app.add_option("--group-size", flags->group_size, "Inputs that share a scale; -1: a whole row")
      ->check(GroupSize())
      ->capture_default_str();
  app.add_option("--calibration", flags->calibration,
                 "Activations to calibrate with: one_shot (full precision) or sequential (those of "
                 "the quantized layers before)")
      ->check(OneOf({"one_shot", "sequential"}))
      ->capture_default_str();
  app.add_option("--http", flags->http,
                 "Where /metrics is served, HOST:PORT; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--grpc", flags->grpc,
                 "Where gRPC is served, HOST:PORT (port 0 takes a free one), or off")
      ->capture_default_str();
  CLI::Option* const run_dir =
      app.add_option("--run-dir", flags->run_dir, "Directory of the journal [none is kept]");
  app.add_option("--slice", flags->slice,
                 "At the end measure the loss between the last two snapshots and this quantizer's "
                 "weights, e.g. gptq3, for examples/plot_slice [none]")
      ->needs(run_dir);
  app.parse_complete_callback([flags] {
    if (flags->slice.empty() || flags->monitor) return;
    throw CLI::ValidationError("--slice", flags->slice + ": needs --monitor on");
  });
  app.add_option("--linger", flags->linger_seconds, "Seconds to go on serving after the last step")
      ->check(RealBetween(0, 1e6))
      ->capture_default_str();
  app.add_option("--seed", flags->seed, "Seed of everything random")
      ->check(IntegerAtLeast(0))
      ->capture_default_str();
  app.add_option("--threads", flags->threads, "Threads to compute with")
      ->check(IntegerAtLeast(1))
      ->capture_default_str();
}

TrainerFlags ParseTrainerFlagsOrExit(int argc, char** argv) {
  CLI::App app;
  TrainerFlags flags;
  AddTrainerFlags(app, &flags);
  if (const auto exit_code = ParseFlags(app, argc, argv)) std::exit(*exit_code);
  return flags;
}

}  // namespace ptqwatch::examples
