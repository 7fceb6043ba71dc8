#include "ranks_flags.h"

#include <limits>

#include "program.h"

namespace ptqwatch::examples {
namespace {

void AddRanksFlags(CLI::App& app, RanksFlags* flags) {
  const auto integer = [&app](const char* name, int64_t* value, int64_t min, const char* help) {
    return app.add_option(name, *value, help)
        ->check(
            CLI::Range(min, std::numeric_limits<int64_t>::max(), "INT >= " + std::to_string(min)))
        ->capture_default_str();
  };
  integer("--rank", &flags->rank, 0, "Number of this process, from 0")->envname("RANK");
  integer("--ranks", &flags->ranks, 1, "Number of processes")->envname("WORLD_SIZE");
  app.add_option("--store", flags->store,
                 "Files through which the ranks exchange gradients; a name that is new for each "
                 "launch, in a folder that all ranks share");
  app.add_option("--timeout", flags->timeout_seconds, "Seconds to wait for another rank")
      ->check(RealFrom(0.001, 1e6))
      ->capture_default_str();
  auto* const checkpoints =
      app.add_option("--checkpoints", flags->checkpoints,
                     "Folder of checkpoints, which a later launch continues [no checkpoints]");
  integer("--checkpoint-every", &flags->checkpoint_every, 1, "Steps between checkpoints");
  auto* const flip =
      integer("--flip-step", &flags->flip_step, 0,
              "Flip a bit of a weight after this step, as a faulty machine would; 0: never");
  integer("--flip-rank", &flags->flip_rank, 0, "The rank whose weight flips");
  app.add_flag("--sharded", flags->sharded,
               "Each rank keeps a part of each parameter, and one process measures the whole model")
      ->excludes(checkpoints)
      ->excludes(flip);
}

}  // namespace

RanksFlags ParseRanksFlags(int argc, char** argv) {
  RanksFlags flags;
  flags.recipe = ParseCharGptFlags(
      argc, argv,
      "Trains a small character-level language model on several processes with equal weights, "
      "which share the work of the monitor.",
      [&](CLI::App& app) { AddRanksFlags(app, &flags); });
  if (flags.rank >= flags.ranks) {
    throw UsageError("--rank: " + std::to_string(flags.rank) + " is not below --ranks " +
                     std::to_string(flags.ranks));
  }
  if (flags.sharded && flags.recipe.muon) {
    throw UsageError("--sharded: --optimizer muon needs whole matrices");
  }
  if (flags.sharded && flags.recipe.trainer.wait) {
    throw UsageError("--sharded: --wait on would make the ranks wait at different steps");
  }
  if (flags.ranks > 1 && flags.store.empty()) {
    throw UsageError("--ranks " + std::to_string(flags.ranks) +
                     " needs --store, where the ranks exchange gradients");
  }
  return flags;
}

}  // namespace ptqwatch::examples
