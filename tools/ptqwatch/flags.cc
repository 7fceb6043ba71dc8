#include "flags.h"

#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/strings.h"
#include "flag_checks.h"
#include "journal_flags.h"
#include "printable.h"
#include "ptqwatch/config.h"
#include "run_flags.h"

namespace ptqwatch::internal {
namespace {

constexpr char kExamples[] = R"(Examples:
  ptqwatch serve runs/*                     serves the runs of these directories, over gRPC and to Prometheus
  ptqwatch watch runs/7                     the run of this directory, on the whole terminal
  ptqwatch watch :9465                      the run that a process of this machine serves
  ptqwatch watch trainer-7 --since now      only what is measured from now on (port 9465)
  ptqwatch watch [::1]:9465 --json | jq .   every report as a line of JSON
  ptqwatch status trainer-7:9465            counters, health and the newest report
  ptqwatch snapshot runs/7 --wait           measure now and print the result
  ptqwatch slice runs/7 --method gptq --bits 3 --wait   the loss surface around the run, as a file
  ptqwatch cooldown runs/7 --steps 20000 --wait         what a decay of 20,000 steps would end with
  ptqwatch pause runs/7                     no snapshots until ptqwatch resume runs/7
  ptqwatch every runs/7 500                 a snapshot every 500 steps from now on
  ptqwatch replay runs/7                    the verdicts on a journal, made anew; needs no run
  ptqwatch history runs/7 --csv > run.csv   its reports as a table; needs no run
  ptqwatch layers runs/7                    the layers that quantization hurts most; needs no run
  ptqwatch report runs/7 -o run.html        the live page of a run as a file; needs no run)";

constexpr char kServeNotes[] = R"(Examples:
  ptqwatch serve runs/7
  ptqwatch serve /data/runs/* --http 127.0.0.1:9464 --grpc off
  ptqwatch serve runs/7 --http 0.0.0.0:9464 --allow-remote --tls-cert me.pem --tls-key me.key --token-file token

http://HOST:PORT/ is a live page of the runs. A directory need not exist yet. Runs are named by the last part of their path: the label run on
/metrics, --run of the other commands. Commands over the network are refused without
--allow-control; on this machine, those who own a run directory can give them by its path.
Ctrl-C ends.)";

void AddServe(CLI::App* app, ServeFlags* flags) {
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  RunServerOptions& options = flags->options;
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
  app->add_flag("--allow-remote", options.allow_remote, "Listen on other than loopback addresses");
  app->add_flag("--allow-control", options.allow_control,
                "Take commands over gRPC: from everybody who reaches the port");
  const auto file = [&](const char* name, std::string* path, const char* help) {
    app->add_option(name, *path, help)->type_name("FILE");
  };
  file("--tls-cert", &options.security.certificate_file,
       "TLS with this certificate chain, PEM; with --tls-key");
  file("--tls-key", &options.security.private_key_file, "Its private key, PEM");
  file("--client-ca", &options.security.client_ca_file,
       "Only for clients with a certificate of these authorities, PEM");
  file("--token-file", &options.security.token_file,
       "Only for clients that send this token; a browser asks for it");
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
  // Between a trainer and the server that it starts: nobody types these.
  const auto own = [app](const char* name, auto& value) {
    app->add_option(name, value)->group("")->check(AtLeast(0));
  };
  own("--beside", flags->beside.trainer);
  own("--linger", flags->beside.linger_seconds);
  own("--max-memory", options.max_memory);
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

// With what each becomes once it is parsed.
using Subcommands = std::vector<std::pair<const CLI::App*, std::function<Invocation()>>>;

Subcommands AddSubcommands(CLI::App* app, AllFlags* flags) {
  Subcommands all;
  const auto add = [&](const char* name, const char* help, auto add_flags, auto* own) {
    CLI::App* const subcommand = app->add_subcommand(name, help);
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
  add("cooldown", "Predict what the decay of the learning rate would end with", AddCooldown,
      &flags->cooldown);
  add("pause", "Take no more snapshots", target, &flags->pause);
  add("resume", "Take snapshots again after pause", target, &flags->resume);
  add("every", "Change the steps between snapshots", AddEvery, &flags->every);
  add("replay", "Judge the reports of a journal once more", AddReplay, &flags->replay);
  add("history", "Print the reports of a journal", AddHistory, &flags->history);
  add("layers", "Show the layers that quantization hurts most", AddLayers, &flags->layers);
  add("report", "Write the page of a run as one HTML file", AddReport, &flags->report);
  return all;
}

}  // namespace

absl::StatusOr<Invocation> ParseCommandLine(int argc, const char* const* argv) {
  CLI::App app("Follows and controls, from anywhere, what ptqwatch measures inside a training run.",
               "ptqwatch");
  app.set_version_flag("--version", "ptqwatch " PTQWATCH_VERSION_STRING);
  app.footer(kExamples);
  app.require_subcommand(0, 1);  // 1 would hide what else is wrong
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
