#include "flags.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <set>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "base/usable_cores.h"
#include "base/utf8.h"
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"

namespace ptqwatch::tools {
namespace {

using internal::LrSchedules;
using internal::StrCat;

constexpr int kUsageExitCode = 2;

constexpr char kNotes[] =
    R"(CHECKPOINT is the folder of a checkpoint in the format of Hugging Face, a folder of such folders (checkpoint-500,
step512, ...), a model's folder in a hub cache (models--ORG--NAME), or a CSV file with the columns path, step,
tokens, learning_rate and branch, of which path is required.

A file of tokens is raw uint16 or uint32, a NumPy array (.npy) or a tensor (.safetensors). Sequence i is tokens
[iN, iN + N], with N of --length.

The learning rate is that of the CSV file, else of --schedule, else of trainer_state.json; without one there are
no phases. Schedules are the name of a published run in docs/recipes.md, such as pythia-160m, smollm3 or olmo2-1b, or,
with [BRANCH=] in front to name a branch:
  wsd:peak=2e-4,warmup=2000,decay_start=4198001,end=4720000[,final=0][,shape=linear|cosine|1-sqrt]
  cosine:peak=3e-4,warmup=2000,end=477000[,final=3e-5][,middle=238000][,floor=0]
  linear:peak=6e-5,end=11931      constant:peak=1e-3

--compare A B measures two models, each given as one CHECKPOINT, and prints their losses with and without each
quantizer, the error E, and B - A of each. Errors of differences are paired: both models see the same sequences.

The run directory is that of any run: ptqwatch serve, watch, report, history and replay read it. Checkpoints that
it has already are not measured again. Exit code 0: done; 1: a failure; 2: a mistake in the options; 130 and 143:
ended by a signal, to be continued by the same command. With --follow, Ctrl-C is the end and gives 0.)";

CLI::Validator AtLeast(int64_t least) {
  return CLI::Range(least, std::numeric_limits<int64_t>::max()).description("");
}

std::vector<std::string> Listed(const std::string& text) {
  return absl::StrSplit(text, ',', absl::SkipEmpty());
}

absl::StatusOr<std::vector<QuantizerSpec>> ParseQuantizers(const std::string& text) {
  std::vector<QuantizerSpec> specs;
  std::set<std::string> names;
  for (const std::string& name : Listed(text)) {
    const absl::StatusOr<QuantizerSpec> spec = ParseQuantizer(name);
    if (!spec.ok()) return spec.status();
    if (!names.insert(ShortName(KeyOf(*spec))).second) {
      return absl::InvalidArgumentError(StrCat(name, " is listed twice"));
    }
    specs.push_back(*spec);
  }
  if (specs.empty()) return absl::InvalidArgumentError("no quantizer is listed");
  return specs;
}

// "gptq6:*.mlp.*=gptq5".
absl::StatusOr<SpecOverride> ParseOverride(const std::string& text) {
  const size_t colon = text.find(':');
  const size_t equals = text.rfind('=');
  if (colon == std::string::npos || equals == std::string::npos || equals < colon) {
    return absl::InvalidArgumentError("must be QUANTIZER:GLOB=QUANTIZER");
  }
  const absl::StatusOr<QuantizerSpec> spec = ParseQuantizer(text.substr(equals + 1));
  if (!spec.ok()) return spec.status();
  return SpecOverride{.layers = text.substr(colon + 1, equals - colon - 1),
                      .spec = *spec,
                      .of = text.substr(0, colon)};
}

// Adds an option whose value `parse` turns into `value`, or refuses.
template <typename T, typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, T* value, Parse parse,
                       const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [value, parse](const std::string& text) { *value = *parse(text); }, help)
      ->check(CLI::Validator(
          [parse](std::string& text) {
            const absl::Status status = parse(text).status();
            return status.ok() ? "" : StrCat(internal::Quoted(text), ": ", status);
          },
          ""));
}

void AddData(CLI::App& app, Flags* flags) {
  app.add_option("--probe", flags->probe, "Tokens on which losses are compared")
      ->type_name("FILE")
      ->required();
  app.add_option("--calibration", flags->calibration, "Tokens that calibrate GPTQ and AWQ")
      ->type_name("FILE")
      ->required();
  app.add_option("--length", flags->length, "Predictions in a sequence")
      ->type_name("N")
      ->required()
      ->check(AtLeast(1));
  app.add_option("--probe-sequences", flags->probe_sequences,
                 "Use this many sequences of --probe, evenly spaced [all]")
      ->type_name("N")
      ->check(AtLeast(1));
  app.add_option("--calibration-sequences", flags->calibration_sequences,
                 "The same for --calibration [all]")
      ->type_name("N")
      ->check(AtLeast(1));
  app.add_option("--token-bytes", flags->token_bytes, "Bytes of a token in raw files: 2 or 4")
      ->type_name("N")
      ->check(CLI::IsMember({2, 4}).description(""))
      ->capture_default_str();
  app.add_option("--tasks", flags->tasks,
                 "Tasks whose accuracy is measured, as written by tools/export_tasks.py")
      ->type_name("FILE.jsonl");
}

void AddConfig(CLI::App& app, Flags* flags) {
  app.add_option("--config", flags->config,
                 "The model's config.json, for folders without one [that of each checkpoint]")
      ->type_name("FILE")
      ->check(CLI::ExistingFile.description(""));
}

void AddMeasurement(CLI::App& app, Flags* flags, std::vector<std::string>* schedules) {
  app.add_option("--run-dir", flags->run_dir,
                 "Directory for the reports; one that has some of them is "
                 "continued")
      ->type_name("DIR");
  AddParsed(app, "--quantizers", &flags->quantizers, &ParseQuantizers,
            "Quantizers by short names, separated by commas")
      ->type_name("NAMES")
      ->default_str("rtn3,rtn4,gptq3,gptq4");
  app.add_option_function<std::vector<std::string>>(
         "--override",
         [flags](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) flags->overrides.push_back(*ParseOverride(text));
         },
         "In the first quantizer, layers whose name matches the glob have the second, as "
         "gptq6:*.mlp.*=gptq5; repeatable, the first match wins")
      ->type_name("QUANTIZER:GLOB=QUANTIZER")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](std::string& text) {
            const absl::Status status = ParseOverride(text).status();
            return status.ok() ? "" : StrCat(internal::Quoted(text), ": ", status);
          },
          ""));
  app.add_flag_callback(
      "--no-curvature", [flags] { flags->curvature = false; },
      "Measure no curvature, which needs the whole model in memory");
  app.add_option(
         "--noise", flags->noise,
         "Norm of the Gaussian noise under which the loss is measured, relative to the norm "
         "of each weight; 0: none")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e6).description(""))
      ->capture_default_str();
  app.add_flag("--loss-along", flags->loss_along,
               "Measure the loss at 0.5 and 1.5 times each quantization error, too; for models "
               "whose curvature does not fit into memory");
  app.add_flag("--artifact-size", flags->artifact_size,
               "Measure the entropy of each quantizer's codes and the bytes of the compressed "
               "model, too");
  app.add_option("--schedule", *schedules, "Course of the learning rate, see below; repeatable")
      ->type_name("EXPR")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::Validator(
          [](std::string& text) {
            const absl::Status status = LrSchedules::Parse({text}).status();
            return status.ok() ? "" : StrCat(internal::Quoted(text), ": ", status);
          },
          ""));
  app.add_option("--average", flags->average,
                 "Measure the mean of the last K checkpoints of a branch, too")
      ->type_name("K")
      ->check(CLI::Range(2, 1000).description(""));
  app.add_option_function<std::string>(
         "--soup", [flags](const std::string& text) { flags->soup = Listed(text); },
         "Measure the mean of these checkpoints, by name or path, as branch soup")
      ->type_name("A,B,...");
  app.add_option("--max-bytes", flags->max_bytes, "Memory for measuring [what is free]")
      ->type_name("N")
      ->check(AtLeast(1));
  app.add_option("--threads", flags->threads, "Threads to compute with [all cores]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  app.add_option("--seed", flags->seed, "Seed of random vectors")
      ->type_name("N")
      ->capture_default_str();
}

void AddWork(CLI::App& app, Flags* flags) {
  CLI::Option* const list =
      app.add_flag("--list", flags->list, "Print the units of work and what they cost, and end");
  CLI::Option* const only = app.add_option(
      "--only", flags->only,
      "Measure unit K of --list alone, into RUN_DIR/part-K.jsonl; for many processes at once");
  only->type_name("K")->check(AtLeast(0));
  CLI::Option* const merge =
      app.add_flag("--merge", flags->merge, "Measure nothing: merge what --only has measured");
  CLI::Option* const follow = app.add_flag(
      "--follow", flags->follow, "Measure checkpoints as they appear, until Ctrl-C or --until");
  app.add_option("--until", flags->until, "With --follow: end once a step from here on is measured")
      ->type_name("STEP")
      ->check(AtLeast(0))
      ->needs(follow);
  for (CLI::Option* other : {list, only, merge}) follow->excludes(other);
  list->excludes(only)->excludes(merge);
  only->excludes(merge);
}

// Nothing but losses is compared, and nothing is kept.
void AddComparison(CLI::App& app, Flags* flags) {
  CLI::Option* const compare = app.add_flag_callback(
      "--compare",
      [flags] {
        flags->compare = true;
        flags->curvature = false;
        flags->noise = 0;
      },
      "Measure two models and print the differences of their losses, with paired errors");
  CLI::Option* const json = app.add_flag("--json", flags->json, "With --compare: a line of JSON");
  app.add_flag("--csv", flags->csv, "With --compare: comma-separated values with a header")
      ->needs(compare)
      ->excludes(json);
  json->needs(compare);
}

std::optional<int> CheckComparison(const CLI::App& app, const Flags& flags) {
  for (const char* const name : {"--run-dir", "--tasks", "--no-curvature", "--noise",
                                 "--loss-along", "--artifact-size", "--schedule", "--average",
                                 "--soup", "--list", "--only", "--merge", "--follow", "--until"}) {
    const CLI::Option* const option = app.get_option(name);
    if (option->count() == 0) continue;
    const bool takes_value = option->get_expected_max() > 0;
    return FailWithUsage(StrCat(
        "--compare excludes ", name,
        takes_value ? StrCat(" ", internal::Quoted(option->results().front())) : std::string()));
  }
  for (const std::string& path : flags.checkpoints) {
    if (flags.config.empty() || !std::filesystem::exists(path + "/config.json")) continue;
    return FailWithUsage(StrCat("--config ", internal::Quoted(flags.config), " would replace ",
                                internal::Quoted(path + "/config.json"),
                                ": --compare takes each model as its folder describes it"));
  }
  if (flags.checkpoints.size() == 2) return std::nullopt;
  std::vector<std::string> given;
  for (const std::string& path : flags.checkpoints) given.push_back(internal::Quoted(path));
  return FailWithUsage(StrCat("--compare takes two models, not ", flags.checkpoints.size(), " (",
                              absl::StrJoin(given, ", "), ")"));
}

std::optional<int> CheckOverrides(const Flags& flags) {
  std::vector<std::string> names;
  for (const QuantizerSpec& spec : flags.quantizers) names.push_back(ShortName(KeyOf(spec)));
  for (const SpecOverride& given : flags.overrides) {
    if (std::find(names.begin(), names.end(), given.of) != names.end()) continue;
    return FailWithUsage(StrCat("--override: ", internal::Quoted(given.of),
                                " is none of the quantizers, ", absl::StrJoin(names, ", ")));
  }
  return std::nullopt;
}

std::optional<int> CheckTogether(const CLI::App& app, const Flags& flags) {
  if (const std::optional<int> mistake = CheckOverrides(flags)) return mistake;
  if (flags.compare) return CheckComparison(app, flags);
  if (flags.run_dir.empty() && !flags.list) return FailWithUsage("--run-dir is required");
  if (flags.follow && !flags.soup.empty()) return FailWithUsage("--follow excludes --soup");
  if (flags.soup.size() == 1) {
    return FailWithUsage(StrCat("--soup: ", internal::Quoted(flags.soup.front()),
                                " alone; a soup needs two checkpoints or more"));
  }
  return std::nullopt;
}

}  // namespace

void Warn(std::string_view message) {
  std::cerr << StrCat("ptqwatch-trajectory: ", message, "\n") << std::flush;
}

int FailWithUsage(std::string_view message) {
  Warn(message);
  return kUsageExitCode;
}

std::optional<int> ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app(
      "Measures checkpoints as if their run had been watched: the loss under each quantizer, "
      "curvature, and a verdict for each checkpoint.",
      "ptqwatch trajectory");
  app.set_version_flag("--version", "ptqwatch-trajectory " PTQWATCH_VERSION_STRING);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  flags->threads = internal::UsableCores();
  std::vector<std::string> schedules;
  app.add_option("CHECKPOINT", flags->checkpoints, "Checkpoints of one model; see below")
      ->type_name("")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  AddConfig(app, flags);
  AddData(app, flags);
  AddMeasurement(app, flags, &schedules);
  AddWork(app, flags);
  AddComparison(app, flags);
  app.footer(kNotes);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << std::endl;
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return FailWithUsage(StrCat(internal::Printable(text), " (see ptqwatch trajectory --help)"));
  }
  absl::StatusOr<LrSchedules> parsed = LrSchedules::Parse(schedules);
  if (!parsed.ok()) return FailWithUsage(StrCat("--schedule: ", parsed.status()));
  flags->schedules = *std::move(parsed);
  return CheckTogether(app, *flags);
}

}  // namespace ptqwatch::tools
