#include "study_flags.h"

#include <sched.h>

#include <algorithm>
#include <iterator>

#include "CLI/CLI.hpp"
#include "leg_graph.h"
#include "program.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kMostSeeds = 100;

int UsableCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

}  // namespace

StudyFlags ParseStudyFlags(int argc, char** argv) {
  CLI::App app(
      "Repeats the findings of arXiv 2510.06213 with small models and judges its claims. Killed at "
      "any moment, the same command goes on where it was.");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  StudyFlags flags;
  bool quick = false;
  bool tiny = false;
  int64_t seeds = 0;
  flags.jobs = UsableCores();
  app.add_option("--dir", flags.dir, "Where everything is kept [runs/lr_decay_study, or -quick]");
  app.add_flag("--quick", quick, "Minutes instead of an hour: tries the machinery, shows nothing");
  app.add_flag("--tiny", tiny)->group("");
  app.add_option("--seeds", seeds, "Seeds of everything that is trained [3, quick 1]")
      ->check(CLI::Range(int64_t{1}, kMostSeeds));
  app.add_option("--only", flags.groups,
                 "Parts to run, the others are left out: budget, rate, average, shape, "
                 "weight_decay, cosine")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kGroups), std::end(kGroups))));
  app.add_option("--jobs", flags.jobs, "Legs at a time, one core each [the cores there are]")
      ->check(CLI::Range(1, 1024));
  app.add_option("--text", flags.text,
                 "Text to train on [the King James Bible, as `bible` prints it]");
  app.add_option("--leg", flags.leg)->group("");
  ParseFlags(app, argc, argv);
  if (quick && tiny) throw UsageError("--quick: not with --tiny");

  flags.settings = SettingsOf(quick ? "quick" : tiny ? "tiny" : "full");
  if (seeds > 0) flags.settings.seeds = seeds;
  if (flags.dir.empty()) flags.dir = quick ? "runs/lr_decay_study-quick" : "runs/lr_decay_study";
  return flags;
}

}  // namespace ptqwatch::examples
