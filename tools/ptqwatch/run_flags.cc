#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "client/client_security.h"
#include "flag_checks.h"
#include "ptqwatch/control.h"
#include "subcommand_flags.h"

namespace ptqwatch::internal {
namespace {

constexpr char kWatchNotes[] = R"(Examples:
  ptqwatch watch :9465 --count 1
  ptqwatch watch trainer-7:9465 --json >> reports.jsonl

On a terminal, a full-screen view shows the run, verdict and advice, the relative loss increase E of each
quantizer with its standard error, trends of the last reports, the worst layers and events. q quits, p
pauses. With --plain or --json, or if input or output is not a terminal, prints a row per report:

Columns: probe loss in nats; for each quantizer the relative loss increase with its standard error;
the top Hessian eigenvalue (~: residual above 10 %); the Hessian's trace with its standard error;
the distance to the edge of stability, if measured (1: at the edge).
The verdict "decay" stands for decay_degradation. "-" means not measured; a word gives the reason why
a measurement failed. Lines that begin with "--" are events, such as the beginning or end of an alarm.

Exits with code 0 when the run has stopped its monitor, and with 1 if it died without stopping it or is
not measured. Ctrl-C and --count end it earlier.)";

constexpr char kSliceNotes[] =
    R"(The plane contains the weights of the next two snapshots and the quantized weights of the second one.
The file is written to the trainer's run directory; examples/plot_slice draws it.)";

constexpr char kCooldownNotes[] =
    R"(Trains a copy of the model through decays shorter than the planned one, in time that training does not
use, and extrapolates the error to the end of the planned decay. The trainer must provide a training
step for the copy (train_step of its subject).)";

constexpr char kTargetHelp[] =
    "A run directory (with a slash, or existing), or the HOST:PORT that a server prints after "
    "\"grpc\"; also :PORT, [IPV6]:PORT, or HOST for port 9465";

// Credentials are read from files, because every user of a machine can read command lines.
void AddSecurity(CLI::App* app, ClientSecurity* security) {
  const auto file = [&](const char* name, std::string* text, const char* help) {
    return app
        ->add_option_function<std::string>(
            name, [text](const std::string& path) { *text = *ReadSecret(path); }, help)
        ->type_name("FILE")
        ->check(CLI::Validator(
            [](std::string& path) {
              return Printable(std::string(Message(ReadSecret(path).status())));
            },
            ""));
  };
  app->add_flag("--tls", security->tls, "Use TLS");
  CLI::Option* const certificate =
      file("--cert", &security->certificate, "Client certificate, PEM; needs --key");
  CLI::Option* const key = file("--key", &security->key, "Private key of --cert, PEM");
  certificate->needs(key);
  key->needs(certificate);
  file("--ca", &security->roots,
       "Authorities that sign the server's certificate, PEM [the system's]");
  file("--token-file", &security->token, "File with the server's token");
  app->parse_complete_callback(
      [security] { security->tls |= !security->roots.empty() || !security->certificate.empty(); });
}

}  // namespace

void AddTarget(CLI::App* app, Target* target) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option_function<std::string>(
         "RUN",
         [target](const std::string& text) {
           Target parsed = *ParseTarget(text);
           target->address = std::move(parsed.address);
           target->run_dir = std::move(parsed.run_dir);
         },
         kTargetHelp)
      ->type_name("")
      ->required()
      ->check(CLI::Validator(
          [](std::string& text) { return std::string(Message(ParseTarget(text).status())); }, ""));
  app->add_option("--run", target->run, "Run to select on a server with several runs")
      ->type_name("NAME");
  AddSecurity(app, &target->security);
}

void AddWatch(CLI::App* app, WatchFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_flag("--json", flags->json, "Reports and events as lines of JSON, as in a journal");
  app->add_flag("--plain", flags->plain, "Print a row per report even on a terminal");
  app->add_option_function<std::string>(
         "--since",
         [flags](const std::string& text) {
           flags->since.reset();
           if (text != "now") static_cast<void>(absl::SimpleAtoi(text, &flags->since.emplace()));
         },
         "Only reports after this one; now: only new reports [0: all reports]")
      ->type_name("SEQUENCE|now")
      ->check(Quiet(CLI::IsMember({"now"}) | AtLeast(0)));
  app->add_option("--count", flags->count, "End after this many reports")
      ->type_name("N")
      ->check(AtLeast(1));
  app->add_option("--timeout", flags->timeout_seconds,
                  "Give up on a server that is unreachable for this long [10 at first, later 60, "
                  "or never with --keep]")
      ->type_name("SECONDS")
      ->check(Seconds());
  app->add_flag("--keep", flags->keep,
                "Wait for the next attempt or run when this one stops or dies");
  app->add_flag("--exit-when-done")->group("");  // the default
  app->footer(kWatchNotes);
}

void AddStatus(CLI::App* app, StatusFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_flag("--json", flags->json, "The GetStatusResponse as JSON");
}

void AddSnapshot(CLI::App* app, SnapshotFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_flag("--wait", flags->wait, "Wait for the report of the snapshot and print it");
  app->add_flag("--json", flags->json, "With --wait: print it as a line of JSON");
  app->add_option("--timeout", flags->timeout_seconds, "Longest wait with --wait")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
}

void AddSlice(CLI::App* app, SliceFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_option("--method", flags->method, "A quantizer of the run, as named in its reports")
      ->type_name("NAME")
      ->required();
  app->add_option("--bits", flags->bits, "Its bit-width")
      ->type_name("N")
      ->check(Quiet(CLI::Range(1, 16)))
      ->required();
  app->add_option("--format", flags->format, "Its number format, such as nvfp4 [int; nf4 for nf4]")
      ->type_name("NAME");
  app->add_option("--points", flags->points, "Points along each axis")
      ->type_name("N")
      ->check(Quiet(CLI::Range(kMinSlicePoints, kMaxSlicePoints)))
      ->capture_default_str();
  app->add_flag("--wait", flags->wait, "Show the progress and wait for the file");
  app->add_option("--timeout", flags->timeout_seconds, "Longest wait with --wait")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
  app->footer(kSliceNotes);
}

void AddCooldown(CLI::App* app, CooldownFlags* flags) {
  AddTarget(app, &flags->target);
  CLI::Option* const steps =
      app->add_option("--steps", flags->decay_steps,
                      "Steps of the planned decay [from the trainer's options]")
          ->type_name("N")
          ->check(AtLeast(1));
  CLI::Option* const wait =
      app->add_flag("--wait", flags->wait, "Show the progress and wait for the prediction");
  app->add_option("--timeout", flags->timeout_seconds, "Longest wait with --wait")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
  app->add_flag("--cancel", flags->cancel, "End the running cooldown")
      ->excludes(steps)
      ->excludes(wait);
  app->footer(kCooldownNotes);
}

void AddEvery(CLI::App* app, EveryFlags* flags) {
  AddTarget(app, &flags->target);
  app->add_option("STEPS", flags->steps, "Steps between snapshots")
      ->type_name("")
      ->required()
      ->check(AtLeast(1));
}

}  // namespace ptqwatch::internal
