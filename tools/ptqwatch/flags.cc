#include "flags.h"

#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/strings.h"
#include "flag_checks.h"
#include "printable.h"
#include "ptqwatch/config.h"
#include "subcommand_flags.h"

namespace ptqwatch::internal {
namespace {

constexpr char kExamples[] = R"(Examples:
  ptqwatch serve runs/*                     serves the runs of these directories, over gRPC and to Prometheus
  ptqwatch watch runs/7                     the run of this directory, full-screen
  ptqwatch watch :9465                      the run that a process of this machine serves
  ptqwatch watch trainer-7 --since now      only what is measured from now on (port 9465)
  ptqwatch watch [::1]:9465 --json | jq .   every report as a line of JSON
  ptqwatch status trainer-7:9465            counters, health and the newest report
  ptqwatch snapshot runs/7 --wait           measure now and print the result
  ptqwatch slice runs/7 --method gptq --bits 3 --wait   the loss surface around the run, as a file
  ptqwatch cooldown runs/7 --steps 20000 --wait         predict the end of a decay of 20,000 steps
  ptqwatch pause runs/7                     no snapshots until ptqwatch resume runs/7
  ptqwatch every runs/7 500                 a snapshot every 500 steps from now on
  ptqwatch replay runs/7                    recompute the verdicts of a journal; needs no run
  ptqwatch history runs/7 --csv > run.csv   its reports as a table; needs no run
  ptqwatch layers runs/7                    the layers that quantization hurts most; needs no run
  ptqwatch report runs/7 -o run.html        the live page of a run as a file; needs no run
  ptqwatch trajectory --help                how to measure the checkpoints of a run)";

constexpr char kServeNotes[] = R"(Examples:
  ptqwatch serve runs/7
  ptqwatch serve /data/runs/* --http 127.0.0.1:9464 --grpc off
  ptqwatch serve runs/* --http 127.0.0.1:0 --targets targets/this.json
  ptqwatch serve runs/7 --http 0.0.0.0:9464 --allow-remote --tls-cert me.pem --tls-key me.key --token-file token

http://HOST:PORT/ is a live page of the runs. A directory need not exist yet. The last part of its path names
a run, in the label run on /metrics and for --run of other commands. Commands over the network are refused
without --allow-control; on this machine, the owner of a run directory can send them by its path.
Ctrl-C ends the server.)";

void AddServe(CLI::App* app, ServeFlags* flags) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  ServeOptions& options = flags->options;
  app->add_option("RUN_DIR", flags->run_dirs, "Run directories")
      ->type_name("")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option("--http", options.http, "Address that serves /metrics, or off")
      ->type_name("HOST:PORT|off")
      ->capture_default_str();
  app->add_option("--grpc", options.grpc, "Address that serves gRPC, or off")
      ->type_name("HOST:PORT|off")
      ->capture_default_str();
  app->add_flag("--allow-remote", options.allow_remote, "Allow addresses other than loopback");
  app->add_flag("--allow-control", options.allow_control,
                "Accept commands over gRPC from everyone who can reach the port");
  const auto file = [&](const char* name, std::string* path, const char* help) {
    app->add_option(name, *path, help)->type_name("FILE");
  };
  file("--tls-cert", &options.security.certificate_file,
       "Certificate chain for TLS, PEM; needs --tls-key");
  file("--tls-key", &options.security.private_key_file, "Private key of --tls-cert, PEM");
  file("--client-ca", &options.security.client_ca_file,
       "Require client certificates signed by these authorities, PEM");
  file("--token-file", &options.security.token_file,
       "Require the token in this file; browsers ask for it");
  file("--targets", &options.targets_file,
       "Give Prometheus the address of --http in this file (file_sd_configs), while the server "
       "runs");
  app->add_option("--max-layers", options.max_layers,
                  "Maximum number of layers with their own series on /metrics; others share one")
      ->type_name("N")
      ->check(Quiet(CLI::Range(0, std::numeric_limits<int>::max())))
      ->capture_default_str();
  app->add_option("--allow-host", options.allowed_hosts,
                  "Host name by which browsers may open the live page, besides localhost and IP "
                  "addresses; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  // Hidden options that a trainer passes to the server that it starts.
  const auto own = [app](const char* name, auto& value) {
    app->add_option(name, value)->group("")->check(AtLeast(0));
  };
  own("--beside", flags->beside.trainer);
  own("--linger", flags->beside.linger_seconds);
  own("--max-memory", options.max_memory);
  app->add_flag("--of-rank", flags->beside.of_rank)->group("");
  app->add_flag("--remove", flags->beside.remove_run_dir)->group("");
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

struct AllFlags {
  ServeFlags serve;
  WatchFlags watch;
  StatusFlags status;
  SnapshotFlags snapshot;
  SliceFlags slice;
  CooldownFlags cooldown;
  PauseFlags pause;
  ResumeFlags resume;
  EveryFlags every;
  ReplayFlags replay;
  HistoryFlags history;
  LayersFlags layers;
  ReportFlags report;
};

// Each with a function that returns its parsed flags.
using Subcommands = std::vector<std::pair<const CLI::App*, std::function<Invocation()>>>;

Subcommands AddSubcommands(CLI::App* app, AllFlags* flags) {
  Subcommands all;
  const auto add = [&](const char* name, const char* help, auto add_flags, auto* own) {
    CLI::App* const subcommand = app->add_subcommand(name, help);
    subcommand->footer("");  // otherwise the examples of all commands
    add_flags(subcommand, own);
    all.emplace_back(subcommand, [own] { return Invocation(*own); });
  };
  const auto target = [](CLI::App* subcommand, auto* own) { AddTarget(subcommand, &own->target); };
  add("serve", "Serve the runs of run directories", AddServe, &flags->serve);
  all.back().second = [flags] { return Invocation(ServedAddresses(flags->serve)); };
  add("watch", "Follow a run, live", AddWatch, &flags->watch);
  add("status", "Show the state of a run, once", AddStatus, &flags->status);
  add("snapshot", "Take a snapshot at the next step", AddSnapshot, &flags->snapshot);
  add("slice", "Measure the loss surface around the next snapshots", AddSlice, &flags->slice);
  add("cooldown", "Predict the end of the learning-rate decay", AddCooldown, &flags->cooldown);
  add("pause", "Take no more snapshots", target, &flags->pause);
  add("resume", "Take snapshots again after pause", target, &flags->resume);
  add("every", "Change the steps between snapshots", AddEvery, &flags->every);
  add("replay", "Recompute the verdicts of a journal", AddReplay, &flags->replay);
  add("history", "Print the reports of a journal", AddHistory, &flags->history);
  add("layers", "Show the layers that quantization hurts most", AddLayers, &flags->layers);
  add("report", "Write the live page of a run to one HTML file", AddReport, &flags->report);
  app->add_subcommand("trajectory", "Measure the checkpoints of a run");
  return all;
}

}  // namespace

absl::StatusOr<Invocation> ParseCommandLine(int argc, const char* const* argv) {
  // Another program parses what follows this command, --help included.
  if (argc > 1 && std::string_view(argv[1]) == "trajectory") {
    return TrajectoryFlags{.arguments = {argv + 2, argv + argc}};
  }
  CLI::App app("Follows and controls ptqwatch monitors in training runs, from any machine.",
               "ptqwatch");
  app.set_version_flag("--version", "ptqwatch " PTQWATCH_VERSION_STRING);
  app.footer(kExamples);
  app.require_subcommand(0, 1);  // 1 would hide other mistakes
  AllFlags flags;
  const Subcommands subcommands = AddSubcommands(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return PrintText{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return PrintText{StrCat(version.what(), "\n")};
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(StrCat(OneLine(error.what()), " (see ptqwatch --help)"));
  }
  for (const auto& [subcommand, command] : subcommands) {
    if (subcommand->parsed()) return command();
  }
  return absl::InvalidArgumentError("no command given (see ptqwatch --help)");
}

}  // namespace ptqwatch::internal
