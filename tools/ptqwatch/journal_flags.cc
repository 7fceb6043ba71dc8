#include <cmath>
#include <optional>
#include <string>

#include "base/strings.h"
#include "flag_checks.h"
#include "subcommand_flags.h"

namespace ptqwatch::internal {
namespace {

constexpr char kReplayNotes[] = R"(Examples:
  ptqwatch replay runs/7
  ptqwatch replay runs/7/journal.jsonl --json | jq .verdict
  ptqwatch replay runs/7 --decay-sigmas 3 --floor-nats 0.01
  zcat old.jsonl.gz | ptqwatch replay -

Needs no run and no server. This version of ptqwatch computes the verdicts, even if another one wrote the
journal. Prints a line for each report: step, learning rate, phase, relative loss increase of the watched
quantizer, verdict, and its summary if the verdict changes. An alarm is decay_degradation or spike.)";

constexpr char kHistoryNotes[] = R"(Examples:
  ptqwatch history runs/7
  ptqwatch history runs/7 --csv > run.csv
  ptqwatch history runs/7 --json --since 40 | jq .probe_loss_nats

--csv prints a line for each report and quantizer; unmeasured fields are empty, and numbers have all their
digits. --json prints a line for each report, as in the journal. Verdicts are recomputed, as by replay.)";

constexpr char kLayersNotes[] = R"(Examples:
  ptqwatch layers runs/7
  ptqwatch layers runs/7 --step 14400 --top 5
  ptqwatch layers runs/7 --csv > layers.csv

Shows the layers of the newest report that has any, or of the report of --step, sorted by their contribution
to the loss of the watched quantizer or, if curvature was not measured, by the error of their output.)";

constexpr char kReportNotes[] = R"(Example:
  ptqwatch report runs/7 -o run.html

The file is the live page of the run at this moment. It needs no server and no other files, so it can be
kept or sent to others. The page of an unfinished run can be written again later.)";

void AddJournal(CLI::App* app, std::string* journal) {
  app->add_option("JOURNAL", *journal,
                  "A run directory, a file of journal lines, or - for standard input")
      ->type_name("")
      ->required();
}

}  // namespace

void AddReplay(CLI::App* app, ReplayFlags* flags) {
  AddJournal(app, &flags->journal);
  app->add_flag("--json", flags->json, "A line of JSON for each report, as in a journal");
  // The bounds are those of Validate(VerdictOptions).
  const auto threshold = [app](const char* name, double* value, std::optional<int> least,
                               const char* help) {
    app->add_option(name, *value, help)
        ->check([least](const std::string& text) {
          double number = 0;
          const bool good = CLI::detail::lexical_cast(text, number) && std::isfinite(number) &&
                            (least ? number >= *least : number > 0);
          if (good) return std::string();
          return StrCat("'", text, "' is not a ",
                        least ? StrCat("number of at least ", *least) : "positive number");
        })
        ->capture_default_str();
  };
  VerdictOptions& options = flags->options;
  threshold("--plateau-sigmas", &options.plateau_sigmas, {},
            "Standard errors of evidence for an alarm while the learning rate is high");
  threshold("--decay-sigmas", &options.decay_sigmas, {}, "The same while it falls");
  threshold("--floor-nats", &options.floor_nats, 0,
            "Smallest rise of the loss for an alarm, in nats per token");
  threshold("--plateau-ratio", &options.plateau_ratio, 1,
            "Smallest ratio to the baseline for an alarm while the learning rate is high");
  threshold("--decay-ratio", &options.decay_ratio, 1, "The same while it falls");
  app->footer(kReplayNotes);
}

void AddHistory(CLI::App* app, HistoryFlags* flags) {
  AddJournal(app, &flags->journal);
  CLI::Option* const json = app->add_flag("--json", flags->json, "Lines of JSON");
  app->add_flag("--csv", flags->csv, "Comma-separated values with a header")->excludes(json);
  app->add_option("--since", flags->since, "Only reports after this one")
      ->type_name("SEQUENCE")
      ->check(AtLeast(0));
  app->footer(kHistoryNotes);
}

void AddLayers(CLI::App* app, LayersFlags* flags) {
  AddJournal(app, &flags->journal);
  app->add_option("--step", flags->step, "Show the report of this step [the newest]")
      ->type_name("STEP")
      ->check(AtLeast(0));
  app->add_option("--top", flags->top, "Number of worst layers to show")
      ->type_name("N")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_flag("--csv", flags->csv, "All layers as comma-separated values with a header");
  app->footer(kLayersNotes);
}

void AddReport(CLI::App* app, ReportFlags* flags) {
  app->add_option("RUN_DIR", flags->run_dir, "A run directory")->type_name("")->required();
  app->add_option("-o,--output", flags->output, "The file to write")->type_name("FILE")->required();
  app->footer(kReportNotes);
}

}  // namespace ptqwatch::internal
