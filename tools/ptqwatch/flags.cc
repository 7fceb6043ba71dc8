#include "flags.h"

#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "printable.h"
#include "ptqwatch/control.h"
#include "ptqwatch/version.h"

namespace ptqwatch::internal {
namespace {

constexpr char kExamples[] = R"(Examples:
  ptqwatch watch :9465                      the run on this machine, as a table
  ptqwatch watch trainer-7 --since now      only what is measured from now on (port 9465)
  ptqwatch watch [::1]:9465 --json | jq .   every report as a line of JSON
  ptqwatch status trainer-7:9465            counters, health and the newest report
  ptqwatch snapshot trainer-7:9465 --wait   measure now and print the result
  ptqwatch slice :9465 --method gptq --bits 3 --wait   the loss surface around the run, as a file)";

constexpr char kWatchNotes[] = R"(Examples:
  ptqwatch watch :9465 --count 1
  ptqwatch watch trainer-7:9465 --exit-when-done --json >> reports.jsonl

Columns: probe loss in nats; for each quantizer the relative loss increase with its standard error;
the top Hessian eigenvalue (~: residual above 10 %); the Hessian's trace with its standard error.
A "-" was not measured; a word says why a measurement failed. Ctrl-C ends.)";

constexpr char kSliceNotes[] =
    R"(The plane goes through the weights of the next two snapshots and the quantized second one; the file
is written to the trainer's run directory. examples/plot_slice draws it.)";

constexpr char kAddressHelp[] =
    "What the trainer printed as \"grpc HOST:PORT\"; also :PORT, [IPV6]:PORT, or HOST for port "
    "9465";

std::string Wrong(const std::string& text, std::string_view expected) {
  return StrCat("'", Printable(text), "' is not ", expected);
}

bool IsInteger(const std::string& text, int64_t least) {
  int64_t value = 0;
  return absl::SimpleAtoi(text, &value) && value >= least;
}

void AddAddress(CLI::App* app, HostPort* address) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->add_option_function<std::string>(
         "ADDRESS",
         [address](const std::string& text) {
           *address = *ParseServerAddress(text, kDefaultGrpcPort);
         },
         kAddressHelp)
      ->type_name("")
      ->required()
      ->check(CLI::Validator(
          [](std::string& text) {
            return std::string(Message(ParseServerAddress(text, kDefaultGrpcPort).status()));
          },
          ""));
}

CLI::Validator Seconds() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) && value >= 0 && value <= 1e8
                   ? std::string()
                   : Wrong(text, "a number of seconds from 0 to 1e8");
      },
      "");
}

void AddWatch(CLI::App* app, WatchFlags* flags) {
  AddAddress(app, &flags->address);
  app->add_flag("--json", flags->json, "One line of JSON a report, as in a journal");
  app->add_option_function<std::string>(
         "--since",
         [flags](const std::string& text) {
           flags->since.reset();
           if (text != "now") static_cast<void>(absl::SimpleAtoi(text, &flags->since.emplace()));
         },
         "Only reports after this one; now: only new ones [0: all that the server has]")
      ->type_name("SEQUENCE|now")
      ->check(CLI::Validator(
          [](std::string& text) {
            return text == "now" || IsInteger(text, 0)
                       ? std::string()
                       : Wrong(text, "\"now\" or an integer of at least 0");
          },
          ""));
  app->add_option("--count", flags->count, "End after this many reports")
      ->type_name("N")
      ->check(CLI::Validator(
          [](std::string& text) {
            return IsInteger(text, 1) ? std::string() : Wrong(text, "an integer of at least 1");
          },
          ""));
  app->add_option("--timeout", flags->timeout_seconds,
                  "Give up a server that is out of reach for so long [10 at first, then never; 60 "
                  "with --exit-when-done]")
      ->type_name("SECONDS")
      ->check(Seconds());
  app->add_flag("--exit-when-done", flags->exit_when_done,
                "End when the run's monitor stops [wait for the next run]");
  app->footer(kWatchNotes);
}

void AddStatus(CLI::App* app, StatusFlags* flags) {
  AddAddress(app, &flags->address);
  app->add_flag("--json", flags->json, "The GetStatusResponse as JSON");
}

void AddSnapshot(CLI::App* app, SnapshotFlags* flags) {
  AddAddress(app, &flags->address);
  app->add_flag("--wait", flags->wait, "Wait for the report of the snapshot and print it");
  app->add_flag("--json", flags->json, "With --wait: as a line of JSON");
  app->add_option("--timeout", flags->timeout_seconds, "With --wait: how long")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
}

CLI::Validator IntegerBetween(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        return IsInteger(text, least) && !IsInteger(text, most + 1)
                   ? std::string()
                   : Wrong(text, StrCat("an integer from ", least, " to ", most));
      },
      "");
}

void AddSlice(CLI::App* app, SliceFlags* flags) {
  AddAddress(app, &flags->address);
  app->add_option("--method", flags->method, "A quantizer of the run, as its reports name it")
      ->type_name("NAME")
      ->required();
  app->add_option("--bits", flags->bits, "Its bit-width")
      ->type_name("N")
      ->check(IntegerBetween(1, 16))
      ->required();
  app->add_option("--points", flags->points, "Points along each axis")
      ->type_name("N")
      ->check(IntegerBetween(kMinSlicePoints, kMaxSlicePoints))
      ->capture_default_str();
  app->add_flag("--wait", flags->wait, "Say how far it is, and wait for the file");
  app->add_option("--timeout", flags->timeout_seconds, "With --wait: how long")
      ->type_name("SECONDS")
      ->check(Seconds())
      ->capture_default_str();
  app->footer(kSliceNotes);
}

std::string OneLine(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return Printable(text);
}

}  // namespace

absl::StatusOr<Command> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app("Follows, from anywhere, what ptqwatch measures inside a training run.", "ptqwatch");
  app.set_version_flag("--version", "ptqwatch " PTQWATCH_VERSION_STRING);
  app.footer(kExamples);
  app.require_subcommand(0, 1);
  WatchFlags watch_flags;
  StatusFlags status_flags;
  SnapshotFlags snapshot_flags;
  SliceFlags slice_flags;
  CLI::App* const watch =
      app.add_subcommand("watch", "Follow a run: one row a report, as they come");
  CLI::App* const status = app.add_subcommand("status", "Show how a run is doing, once");
  CLI::App* const snapshot =
      app.add_subcommand("snapshot", "Have a snapshot taken at the next step");
  CLI::App* const slice =
      app.add_subcommand("slice", "Have the loss surface measured around the next snapshots");
  AddWatch(watch, &watch_flags);
  AddStatus(status, &status_flags);
  AddSnapshot(snapshot, &snapshot_flags);
  AddSlice(slice, &slice_flags);

  constexpr std::string_view kCommands = "watch, status, snapshot, slice (see ptqwatch --help)";
  const std::string first = argc < 2 ? "-" : argv[1];
  if (!first.starts_with('-') && first != watch->get_name() && first != status->get_name() &&
      first != snapshot->get_name() && first != slice->get_name()) {
    return absl::InvalidArgumentError(
        StrCat("'", Printable(first), "' is not a command; there are ", kCommands));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return PrintText{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return PrintText{StrCat(version.what(), "\n")};
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(OneLine(error.what()));
  }
  if (watch->parsed()) return watch_flags;
  if (status->parsed()) return status_flags;
  if (snapshot->parsed()) return snapshot_flags;
  if (slice->parsed()) return slice_flags;
  return absl::InvalidArgumentError(StrCat("no command given; there are ", kCommands));
}

}  // namespace ptqwatch::internal
