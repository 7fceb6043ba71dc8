#include "trainer_flags.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <string_view>

#include "ptqwatch/quantizer.h"

namespace ptqwatch::examples {
namespace {

CLI::Validator QuantizationMethodName() {
  return CLI::Validator(
      [](std::string& name) {
        return std::string(ParseQuantizationMethod(name).status().message());
      },
      "METHOD");
}

CLI::Validator QuantizerName() {
  return CLI::Validator(
      [](std::string& name) { return std::string(ParseQuantizer(name).status().message()); },
      "NAME");
}

// Accepts an address HOST:PORT, or "off".
CLI::Validator ServedAddress() {
  return CLI::Validator(
      [](std::string& text) {
        if (text == "off") return std::string();
        if (text.empty()) return std::string("'' is not an address HOST:PORT");
        return std::string(Validate(ServeOptions{.http = text, .grpc = ""}).message());
      },
      "");
}

constexpr int64_t kMostPerDecade = 1000;

// Parses "200", "30s" or "10/decade".
std::optional<ScheduleOptions> ParseEvery(std::string text) {
  constexpr std::string_view kPerDecade = "/decade";
  ScheduleOptions schedule;
  if (text.ends_with(kPerDecade)) {
    text.resize(text.size() - kPerDecade.size());
    int64_t& times = schedule.log_spaced_per_decade;
    if (!CLI::detail::lexical_cast(text, times) || times < 1 || times > kMostPerDecade) return {};
    return schedule;
  }
  if (text.ends_with('s')) {
    text.pop_back();
    double& seconds = schedule.every_seconds;
    if (!CLI::detail::lexical_cast(text, seconds) || !(seconds > 0 && seconds <= 1e8)) return {};
    return schedule;
  }
  int64_t& steps = schedule.every;
  if (!CLI::detail::lexical_cast(text, steps) || steps < 1) return {};
  return schedule;
}

std::vector<QuantizerSpec> QuantizersOf(const TrainerFlags& flags) {
  std::vector<QuantizerSpec> quantizers;
  const auto add = [&](QuantizerSpec spec) {
    spec.group_size = flags.group_size;
    if (std::find(quantizers.begin(), quantizers.end(), spec) == quantizers.end()) {
      quantizers.push_back(spec);
    }
  };
  for (const std::string& name : flags.quantizers) add(ParseQuantizer(name).value());
  if (!quantizers.empty()) return quantizers;
  for (const std::string& name : flags.methods) {
    const QuantizationMethod method = ParseQuantizationMethod(name).value();
    for (const int bits : flags.bits) {
      add({.method = method, .bits = FixedBits(method).value_or(bits)});
    }
  }
  return quantizers;
}

}  // namespace

CLI::Validator RealFrom(double min, double max) {
  std::ostringstream range;
  range << min << ".." << max;
  return CLI::Validator(
      [min, max, range = range.str()](std::string& text) {
        double value = 0;
        const bool accepted =
            CLI::detail::lexical_cast(text, value) && value >= min && value <= max;
        return accepted ? std::string() : "'" + text + "' is not a number in " + range;
      },
      range.str());
}

CLI::Option* AddSwitch(CLI::App& app, const std::string& name, bool* value,
                       const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [value](const std::string& text) { *value = text == "on"; }, help)
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str(*value ? "on" : "off");
}

void AddTrainerFlags(CLI::App& app, TrainerFlags* flags) {
  // The last of repeated flags wins, so a script can append its user's flags to its own.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto positive = CLI::Range(1, std::numeric_limits<int>::max(), "INT >= 1");
  AddSwitch(app, "--monitor", &flags->monitor, "Watch the run (on) or only train (off)");
  AddSwitch(app, "--wait", &flags->wait,
            "Wait for each snapshot to be measured (on), so that every run has the same snapshots");
  app.add_option_function<std::string>(
         "--every", [flags](const std::string& text) { flags->every = ParseEvery(text); },
         "When to take snapshots: every N steps (200), every N seconds (30s), or evenly on a "
         "logarithmic scale of steps (10/decade) [a twentieth of the run]")
      ->type_name("STEPS|SECONDSs|N/decade")
      ->check(CLI::Validator(
          [](std::string& text) {
            return ParseEvery(text)
                       ? std::string()
                       : "'" + text + "' is not a schedule such as 200, 30s or 10/decade";
          },
          ""));
  app.add_option(
         "--decay-density", flags->decay_density,
         "This many times as many snapshots while the learning rate decays, if there is time "
         "(with --wait on: 1)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--bits", flags->bits, "Bit-widths to try, for methods that have more than one")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  app.add_option("--methods", flags->methods, "Quantization methods to try")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(QuantizationMethodName())
      ->capture_default_str();
  app.add_option("--quantizers", flags->quantizers,
                 "Quantizers to try instead of all methods at all bits: gptq3, nf4, rtn-mxfp4, ...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(QuantizerName());
  app.add_option("--group-size", flags->group_size, "Inputs that share a scale; -1: a whole row")
      ->check(positive | CLI::IsMember({-1}))
      ->capture_default_str();
  app.add_option("--calibration", flags->calibration,
                 "Activations to calibrate with: one_shot (full precision) or sequential (after "
                 "quantizing the earlier layers)")
      ->check(CLI::IsMember({"one_shot", "sequential"}))
      ->capture_default_str();
  app.add_flag("--artifact-size", flags->artifact_size,
               "Measure the entropy of each quantizer's codes and the size of the model, too");
  app.add_option("--http", flags->http,
                 "Address for /metrics and the page, HOST:PORT (port 0 takes a free one), or off")
      ->check(ServedAddress())
      ->capture_default_str();
  app.add_option("--grpc", flags->grpc,
                 "Address for gRPC, HOST:PORT (port 0 takes a free one), or off")
      ->check(ServedAddress())
      ->capture_default_str();
  app.add_option("--targets", flags->targets,
                 "File that gives Prometheus the address of --http (file_sd_configs) [no file]");
  app.add_flag("--allow-control", flags->allow_control,
               "Accept commands over gRPC from every user of this machine");
  app.add_option("--run-dir", flags->run_dir, "Run directory with the journal [no journal]");
  app.add_option("--linger", flags->linger_seconds, "Seconds to keep serving after the last step")
      ->check(RealFrom(0, 1e6))
      ->capture_default_str();
  app.add_option("--text", flags->text,
                 "Text to train on [the King James Bible, as `bible` prints it]");
  app.add_option("--seed", flags->seed, "Random seed")->capture_default_str();
  app.add_option("--threads", flags->threads, "Threads to compute with")
      ->check(positive)
      ->capture_default_str();
}

MonitorOptions MakeMonitorOptions(const TrainerFlags& flags, int64_t steps) {
  MonitorOptions options;
  options.schedule =
      flags.every.value_or(ScheduleOptions{.every = std::max<int64_t>(1, steps / 20)});
  // With --wait, runs must not depend on the machine's speed, as additional snapshots would.
  options.schedule.decay_density = flags.wait ? 1 : flags.decay_density;
  options.quantizers = QuantizersOf(flags);
  options.calibration_mode = ParseCalibrationMode(flags.calibration).value();
  options.artifact_size = flags.artifact_size;
  options.seed = flags.seed;
  options.training_threads = flags.threads;
  // A trainer that waits for every report needs no lighter plan.
  options.adapt_plan = !flags.wait;
  options.run_dir = flags.run_dir;
  if (flags.http != "off" || flags.grpc != "off") {
    const auto address = [](const std::string& flag) { return flag == "off" ? "" : flag; };
    // The trainer itself waits for --linger, so its server need not.
    options.serve = {.http = address(flags.http),
                     .grpc = address(flags.grpc),
                     .allow_control = flags.allow_control,
                     .targets_file = flags.targets,
                     .linger = std::chrono::seconds(0)};
  }
  return options;
}

}  // namespace ptqwatch::examples
