// Repeats the findings of arXiv 2510.06213 with small models. This file takes the flags, makes what
// has not been made (leg_processes.h), reads the journals and writes what they say (results.h). A
// leg is a process of this program, which trains and measures (train_leg.h).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ATen/Parallel.h"
#include "claims.h"
#include "leg_graph.h"
#include "leg_processes.h"
#include "program.h"
#include "results.h"
#include "stop_signal.h"
#include "study_data.h"
#include "study_dir.h"
#include "study_flags.h"
#include "text.h"
#include "train_leg.h"
#include "weights_hash.h"

namespace ptqwatch::examples {
namespace {

/// Characters of one held-out sequence: the MLP's eight before the first prediction, then one each.
constexpr int64_t kContext = 8;

std::string ReadStudyText(const StudyFlags& flags) {
  std::string text = OrUsageError(ReadText(flags.text));
  const int64_t needed = flags.settings.probe_sequences * (flags.settings.length + kContext);
  const int64_t held_out = std::ssize(text) - std::ssize(text) / 10 * 9;
  if (held_out < needed) {
    throw UsageError("--text " + (flags.text.empty() ? "(the Bible)" : flags.text) +
                     ": too short: its last tenth has " + std::to_string(held_out) +
                     " characters, and " + std::to_string(needed) + " are measured on");
  }
  return text;
}

int MakeOneLeg(const StudyFlags& flags) {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  const std::vector<Leg> legs = MakeLegs(flags.settings, {});
  const auto leg = std::find_if(legs.begin(), legs.end(),
                                [&](const Leg& candidate) { return candidate.id == flags.leg; });
  if (leg == legs.end()) throw UsageError("--leg " + flags.leg + ": there is no such leg");
  MakeLeg(*leg, flags.settings, StudyDir(flags.dir));
  return 0;
}

void WriteResults(const StudySettings& settings, const StudyDir& dir,
                  const std::vector<Leg>& legs) {
  const StudyData data = ReadStudy(settings, dir, legs);
  const std::vector<Claim> claims = JudgeClaims(data);
  const std::string page = ResultsPage(data, claims);
  dir.Write("results.json", ResultsJson(data, claims).dump(1) + "\n");
  dir.Write("results.md", page);
  std::printf("%s\nresults: %s\n", ResultsTable(data, claims).c_str(),
              (dir.root() / "results.json").c_str());
}

int RunStudy(StudyFlags flags, const std::vector<std::string>& arguments) {
  const std::string text = ReadStudyText(flags);
  flags.settings.text_sha256 = Sha256(std::vector{std::as_bytes(std::span(text))});
  StudyDir dir(flags.dir);
  dir.Take(flags.settings, text);
  const StopSignal stop;
  const std::vector<Leg> legs = MakeLegs(flags.settings, flags.groups);
  const LegsMade made = RunLegs(legs, flags.settings, dir, flags.jobs, arguments, stop);
  if (stop.requested()) {
    std::fprintf(stderr, "interrupted after %zu of %zu legs; the same command goes on from there\n",
                 made.finished, legs.size());
    return stop.exit_code();
  }
  // What other groups have left there is judged, too.
  WriteResults(flags.settings, dir, MakeLegs(flags.settings, {}));
  if (made.failed == 0) return 0;
  std::fprintf(stderr, "%zu legs failed, and %zu that need them were left out\n", made.failed,
               made.left_out);
  return 1;
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  return ptqwatch::examples::RunProgram([&] {
    // Legs run beside each other, each on one core.
    setenv("OMP_NUM_THREADS", "1", 1);
    const auto flags = ptqwatch::examples::ParseStudyFlags(argc, argv);
    return flags.leg.empty()
               ? ptqwatch::examples::RunStudy(flags, std::vector<std::string>(argv, argv + argc))
               : ptqwatch::examples::MakeOneLeg(flags);
  });
}
