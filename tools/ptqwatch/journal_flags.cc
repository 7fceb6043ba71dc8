#include "journal_flags.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "base/strings.h"
#include "flag_checks.h"

namespace ptqwatch::internal {
namespace {

constexpr char kReplayNotes[] = R"(Examples:
  ptqwatch replay runs/7
  ptqwatch replay runs/7/journal.jsonl --json | jq .verdict
  ptqwatch replay runs/7 --decay-sigmas 3 --floor-nats 0.01
  zcat old.jsonl.gz | ptqwatch replay -

Needs no run and no server. The verdicts are those of this version of ptqwatch, whatever version wrote
the journal. A line for each report: step, learning rate, phase, relative loss increase of the watched
quantizer, verdict, and where the verdict changes its summary. An alarm is decay_degradation or spike.)";

constexpr char kHistoryNotes[] = R"(Examples:
  ptqwatch history runs/7
  ptqwatch history runs/7 --csv > run.csv
  ptqwatch history runs/7 --json --since 40 | jq .probe_loss_nats

With --csv a line for each report and quantizer, what was not measured is empty; numbers have all their
digits. With --json a report a line, as the journal has it. Verdicts are made anew, as by replay.)";

constexpr char kLayersNotes[] = R"(Examples:
  ptqwatch layers runs/7
  ptqwatch layers runs/7 --step 14400 --top 5
  ptqwatch layers runs/7 --csv > layers.csv

The layers of the newest report that has any, or of the report of --step, sorted by what they add to the
loss of the quantizer that is watched; without curvature, which tells that, by the error of their output.)";

constexpr char kReportNotes[] = R"(Example:
  ptqwatch report runs/7 -o run.html

The file is the live page of the run as it is now. It needs no server and asks for nothing else, so it
can be kept or sent around. A run that goes on may be reported again.)";

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
  app->add_option("--step", flags->step, "Of the report of this step [the newest]")
      ->type_name("STEP")
      ->check(AtLeast(0));
  app->add_option("--top", flags->top, "Only so many of the worst")
      ->type_name("N")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_flag("--csv", flags->csv, "All as comma-separated values with a header");
  app->footer(kLayersNotes);
}

void AddReport(CLI::App* app, ReportFlags* flags) {
  app->add_option("RUN_DIR", flags->run_dir, "A run directory")->type_name("")->required();
  app->add_option("-o,--output", flags->output, "The file to write")->type_name("FILE")->required();
  app->footer(kReportNotes);
}

}  // namespace ptqwatch::internal
