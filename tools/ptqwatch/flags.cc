#include "flags.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "printable.h"
#include "ptqwatch/control.h"
#include "ptqwatch/version.h"

namespace ptqwatch::internal {
namespace {

constexpr char kExamples[] = R"(Examples:
  ptqwatch serve runs/*                     serves the runs of these directories, over gRPC and to Prometheus
  ptqwatch watch runs/7                     the run of this directory, as a table
  ptqwatch watch :9465                      the run that a process of this machine serves
  ptqwatch watch trainer-7 --since now      only what is measured from now on (port 9465)
  ptqwatch watch [::1]:9465 --json | jq .   every report as a line of JSON
  ptqwatch status trainer-7:9465            counters, health and the newest report
  ptqwatch snapshot runs/7 --wait           measure now and print the result
  ptqwatch slice runs/7 --method gptq --bits 3 --wait   the loss surface around the run, as a file
  ptqwatch pause runs/7                     no snapshots until ptqwatch resume runs/7
  ptqwatch every runs/7 500                 a snapshot every 500 steps from now on
  ptqwatch replay runs/7                    the verdicts on a journal, made anew; needs no run
  ptqwatch report runs/7 -o run.html        the live page of a run as a file; needs no run
  ptqwatch plan --shapes model.json         what a monitor of a model would cost; needs no run)";

constexpr char kWatchNotes[] = R"(Examples:
  ptqwatch watch :9465 --count 1
  ptqwatch watch trainer-7:9465 --exit-when-done --json >> reports.jsonl

Columns: probe loss in nats; for each quantizer the relative loss increase with its standard error;
the top Hessian eigenvalue (~: residual above 10 %); the Hessian's trace with its standard error.
The verdict "decay" stands for decay_degradation. A "-" was not measured; a word says why a
measurement failed. Lines that begin with "--" are events: an alarm that begins or ends is one.
Ctrl-C ends.)";

constexpr char kSliceNotes[] =
    R"(The plane goes through the weights of the next two snapshots and the quantized second one. The file
is written to the trainer's run directory; examples/plot_slice draws it.)";

constexpr char kPlanNotes[] = R"(Examples:
  ptqwatch plan --shapes model.safetensors --length 2048 --step-seconds 1.5 --every 500
  ptqwatch plan --shapes shapes.json --no-spare-core

FILE is JSON, {"blocks.0.up.weight": [4096, 1024], ...} or as in the header of a safetensors file,
or a safetensors file. The speed of this machine is measured on one core, which takes some seconds;
the rest is counted. Every matrix but an embedding is taken to be multiplied with every token.)";

constexpr char kReplayNotes[] = R"(Examples:
  ptqwatch replay runs/7
  ptqwatch replay runs/7/journal.jsonl --json | jq .verdict
  ptqwatch replay runs/7 --decay-sigmas 3 --floor-nats 0.01
  zcat old.jsonl.gz | ptqwatch replay -

Needs no run and no server. The verdicts are those of this version of ptqwatch, whatever version wrote
the journal. A line for each report: step, learning rate, phase, relative loss increase of the watched
quantizer, verdict, and where the verdict changes its summary. An alarm is decay_degradation or spike.)";

constexpr char kReportNotes[] = R"(Example:
  ptqwatch report runs/7 -o run.html

The file is the live page of the run as it is now. It needs no server and asks for nothing else, so it
can be kept or sent around. A run that goes on may be reported again.)";

// CLI11 reads larger numbers as the largest of the type.
constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max() - 1;

constexpr char kServeNotes[] = R"(Examples:
  ptqwatch serve runs/7
  ptqwatch serve /data/runs/* --http 127.0.0.1:9464 --grpc off
  ptqwatch serve runs/7 --http 0.0.0.0:9464 --allow-remote

http://HOST:PORT/ is a live page of the runs. A directory need not exist yet. Runs are named by the last part of their path: the label run on
/metrics, --run of the other commands. Commands over the network are refused without
--allow-control; on this machine, those who own a run directory can give them by its path.
Ctrl-C ends.)";

constexpr char kTargetHelp[] =
    "A run directory (with a slash, or existing); or a server as printed by it, \"grpc "
    "HOST:PORT\": "
    "also :PORT, [IPV6]:PORT, or HOST for port 9465";

void AddTarget(CLI::App* app, Target* target) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option_function<std::string>(
         "RUN",
         [target](const std::string& text) {
           Target parsed = *ParseTarget(text);
           parsed.run = target->run;
           *target = std::move(parsed);
         },
         kTargetHelp)
      ->type_name("")
      ->required()
      ->check(CLI::Validator(
          [](std::string& text) { return std::string(Message(ParseTarget(text).status())); }, ""));
  app->add_option("--run", target->run, "Which of the runs of a server that has several")
      ->type_name("NAME");
}

// Without the description that CLI11 would put into the help.
CLI::Validator Quiet(CLI::Validator validator) { return validator.description(""); }

// CLI::Range alone lets "nan" pass.
CLI::Validator Seconds() {
  const CLI::Validator number(
      [](std::string& text) {
        double value = 0;
        const bool good = absl::SimpleAtod(text, &value) && !std::isnan(value);
        return good ? std::string() : StrCat("Value ", Printable(text), " is not a number");
      },
      "");
  return Quiet(number & CLI::Range(0.0, 1e8));
}

CLI::Validator AtLeast(int64_t min) { return Quiet(CLI::Range(min, kMaxInteger)); }

void AddWatch(CLI::App* app, WatchFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_flag("--json", flags->json, "Reports and events as lines of JSON, as in a journal");
  app->add_option_function<std::string>(
         "--since",
         [flags](const std::string& text) {
           flags->since.reset();
           if (text != "now") static_cast<void>(absl::SimpleAtoi(text, &flags->since.emplace()));
         },
         "Only reports after this one; now: only new ones [0: all the server has]")
      ->type_name("SEQUENCE|now")
      ->check(Quiet(CLI::IsMember({"now"}) | CLI::Range(int64_t{0}, kMaxInteger)));
  app->add_option("--count", flags->count, "End after this many reports")
      ->type_name("N")
      ->check(AtLeast(1));
  app->add_option(
         "--timeout", flags->timeout_seconds,
         "Give up on a server that cannot be reached for this long [10 at first, later never, "
         "or 60 with --exit-when-done]")
      ->type_name("SECONDS")
      ->check(Seconds());
  app->add_flag("--exit-when-done", flags->exit_when_done,
                "End when the run's monitor stops [wait for the next run]");
  app->footer(kWatchNotes);
}

void AddStatus(CLI::App* app, StatusFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_flag("--json", flags->json, "The GetStatusResponse as JSON");
}

void AddSnapshot(CLI::App* app, SnapshotFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_flag("--wait", flags->wait, "Wait for the report of the snapshot and print it");
  app->add_flag("--json", flags->json, "With --wait: as a line of JSON");
  app->add_option("--timeout", flags->timeout_seconds, "With --wait: how long")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
}

void AddSlice(CLI::App* app, SliceFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_option("--method", flags->method, "A quantizer of the run, as its reports name it")
      ->type_name("NAME")
      ->required();
  app->add_option("--bits", flags->bits, "Its bit-width")
      ->type_name("N")
      ->check(Quiet(CLI::Range(1, 16)))
      ->required();
  app->add_option("--points", flags->points, "Points along each axis")
      ->type_name("N")
      ->check(Quiet(CLI::Range(kMinSlicePoints, kMaxSlicePoints)))
      ->capture_default_str();
  app->add_flag("--wait", flags->wait, "Show the progress and wait for the file");
  app->add_option("--timeout", flags->timeout_seconds, "With --wait: how long")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
  app->footer(kSliceNotes);
}

void AddEvery(CLI::App* app, EveryFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_option("STEPS", flags->steps, "Steps between snapshots")
      ->type_name("")
      ->required()
      ->check(AtLeast(1));
}

// The defaults of the flags are those of the options.
void AddPlan(CLI::App* app, PlanFlags* flags) {
  ShapePlanOptions& options = flags->options;
  const auto integer = [app](const char* name, int64_t& value, int64_t least, const char* help) {
    app->add_option(name, value, help)
        ->type_name("N")
        ->check(AtLeast(least))
        ->capture_default_str();
  };
  const auto globs = [app](const char* name, std::vector<std::string>& value, const char* help) {
    app->add_option(name, value, help)->type_name("GLOB")->delimiter(',')->capture_default_str();
  };
  app->add_option("--shapes", flags->shapes, "Names and shapes of the model's tensors")
      ->type_name("FILE")
      ->required();
  integer("--length", options.sequence_tokens, 1, "Tokens a sequence");
  integer("--batch", options.batch_sequences, 1, "Sequences of a probe or calibration batch");
  integer("--probe-batches", options.probe_batches, 1, "On which losses are compared");
  integer("--calibration-batches", options.calibration_batches, 1, "For the Gram matrices");
  integer("--curvature-sequences", options.curvature_sequences, 0, "0: no curvature");
  integer("--every", options.every, 1, "Steps between snapshots");
  app->add_option("--step-seconds", options.step_seconds, "Of a training step")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
  app->add_flag("!--no-spare-core", options.spare_core, "Training uses every core");
  integer("--max-gram-bytes", options.max_gram_bytes, 1, "Of Gram matrices at a time");
  integer("--heads", options.attention_heads, 0,
          "Attention heads of a block; 0: one for each 64 of its width");
  globs("--embedding", options.embeddings, "Matrices that are looked up, not multiplied");
  globs("--head", options.heads, "Output heads; without one, the largest embedding is tied to it");
  globs("--exclude", options.exclude, "Matrices that are not quantized");
  app->footer(kPlanNotes);
}

void AddReplay(CLI::App* app, ReplayFlags* flags) {
  app->add_option("JOURNAL", flags->journal,
                  "A run directory, a file of journal lines, or - for standard input")
      ->type_name("")
      ->required();
  app->add_flag("--json", flags->json, "A line of JSON for each report, as in a journal");
  const auto threshold = [app](const char* name, double* value, double least, const char* help) {
    app->add_option(name, *value, help)
        ->check([least](const std::string& text) {
          double number = 0;
          const bool good = CLI::detail::lexical_cast(text, number) && number > 0 &&
                            number >= least && std::isfinite(number);
          if (good) return std::string();
          return StrCat("'", text, "' is no ", least > 0 ? "number from 1 up" : "positive number");
        })
        ->capture_default_str();
  };
  VerdictOptions& options = flags->options;
  threshold("--plateau-sigmas", &options.plateau_sigmas, 0,
            "Evidence that an alarm needs while the learning rate is high, in standard errors");
  threshold("--decay-sigmas", &options.decay_sigmas, 0, "The same while it falls");
  threshold("--floor-nats", &options.floor_nats, 0, "Least rise of the loss that is an alarm");
  threshold("--plateau-ratio", &options.plateau_ratio, 1,
            "Least ratio to the baseline that is an alarm while the learning rate is high");
  threshold("--decay-ratio", &options.decay_ratio, 1, "The same while it falls");
  app->footer(kReplayNotes);
}

void AddReport(CLI::App* app, ReportFlags* flags) {
  app->add_option("RUN_DIR", flags->run_dir, "A run directory")->type_name("")->required();
  app->add_option("-o,--output", flags->output, "The file to write")->type_name("FILE")->required();
  app->footer(kReportNotes);
}

void AddServe(CLI::App* app, ServeFlags* flags) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  RunServerOptions& options = flags->options;
  options.http = PrometheusOptions().address;
  options.grpc = GrpcOptions().address;
  app->add_option("RUN_DIR", options.run_dirs, "Run directories")
      ->type_name("")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option("--http", options.http, "Where /metrics is served; off: it is not")
      ->type_name("HOST:PORT|off")
      ->capture_default_str();
  app->add_option("--grpc", options.grpc, "Where gRPC is served; off: it is not")
      ->type_name("HOST:PORT|off")
      ->capture_default_str();
  app->add_flag("--allow-remote", options.allow_remote,
                "Listen on other than loopback addresses, without TLS and login");
  app->add_flag("--allow-control", options.allow_control,
                "Take commands over gRPC: from everybody who reaches the port");
  app->add_option("--max-layers", options.max_layers,
                  "Layers with series of their own on /metrics; the others are folded into one")
      ->type_name("N")
      ->check(Quiet(CLI::Range(0, std::numeric_limits<int>::max())))
      ->capture_default_str();
  app->add_option("--allow-host", options.allowed_hosts,
                  "A name by which browsers may ask for the live page, beside localhost and IP "
                  "addresses; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->footer(kServeNotes);
}

std::string OneLine(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return Printable(text);
}

ServeFlags ServedAddresses(ServeFlags flags) {
  for (std::string* address : {&flags.options.http, &flags.options.grpc}) {
    if (*address == "off") address->clear();
  }
  return flags;
}

}  // namespace

absl::StatusOr<Command> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app("Follows and controls, from anywhere, what ptqwatch measures inside a training run.",
               "ptqwatch");
  app.set_version_flag("--version", "ptqwatch " PTQWATCH_VERSION_STRING);
  app.footer(kExamples);
  app.require_subcommand(0, 1);  // 1 would hide what else is wrong
  WatchFlags watch_flags;
  StatusFlags status_flags;
  SnapshotFlags snapshot_flags;
  SliceFlags slice_flags;
  PauseFlags pause_flags;
  ResumeFlags resume_flags;
  EveryFlags every_flags;
  PlanFlags plan_flags;
  ServeFlags serve_flags;
  ReplayFlags replay_flags;
  ReportFlags report_flags;
  CLI::App* const serve = app.add_subcommand("serve", "Serve the runs of run directories");
  CLI::App* const watch =
      app.add_subcommand("watch", "Follow a run: one row per report, as they come");
  CLI::App* const status = app.add_subcommand("status", "Show the state of a run, once");
  CLI::App* const snapshot = app.add_subcommand("snapshot", "Take a snapshot at the next step");
  CLI::App* const slice =
      app.add_subcommand("slice", "Measure the loss surface around the next snapshots");
  CLI::App* const pause = app.add_subcommand("pause", "Take no more snapshots");
  CLI::App* const resume = app.add_subcommand("resume", "Take snapshots again after pause");
  CLI::App* const every = app.add_subcommand("every", "Change the steps between snapshots");
  CLI::App* const plan =
      app.add_subcommand("plan", "Say what a monitor of a model would cost, from shapes alone");
  CLI::App* const replay = app.add_subcommand("replay", "Judge the reports of a journal once more");
  CLI::App* const report = app.add_subcommand("report", "Write the page of a run as one HTML file");
  AddWatch(watch, &watch_flags);
  AddStatus(status, &status_flags);
  AddSnapshot(snapshot, &snapshot_flags);
  AddSlice(slice, &slice_flags);
  AddTarget(pause, &pause_flags.target);
  AddTarget(resume, &resume_flags.target);
  AddEvery(every, &every_flags);
  AddPlan(plan, &plan_flags);
  AddServe(serve, &serve_flags);
  AddReplay(replay, &replay_flags);
  AddReport(report, &report_flags);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return PrintText{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return PrintText{StrCat(version.what(), "\n")};
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(StrCat(OneLine(error.what()), " (see ptqwatch --help)"));
  }
  if (watch->parsed()) return watch_flags;
  if (status->parsed()) return status_flags;
  if (snapshot->parsed()) return snapshot_flags;
  if (slice->parsed()) return slice_flags;
  if (pause->parsed()) return pause_flags;
  if (resume->parsed()) return resume_flags;
  if (every->parsed()) return every_flags;
  if (plan->parsed()) return plan_flags;
  if (serve->parsed()) return ServedAddresses(serve_flags);
  if (replay->parsed()) return replay_flags;
  if (report->parsed()) return report_flags;
  return absl::InvalidArgumentError("no command given (see ptqwatch --help)");
}

}  // namespace ptqwatch::internal
