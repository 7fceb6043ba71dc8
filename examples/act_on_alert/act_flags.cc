#include "act_flags.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>

namespace ptqwatch::examples {
namespace {

const std::map<std::string, Act> kActs = {
    {"ignore", Act::kIgnore}, {"stop", Act::kStop}, {"average", Act::kAverage}};

}  // namespace

ActFlags ParseActFlags(int argc, char** argv) {
  ActFlags flags;
  std::optional<int64_t> every;
  flags.recipe = ParseCharGptFlags(
      argc, argv,
      "Trains a small character-level language model and acts when the monitor says that the "
      "decay of the learning rate makes quantization worse.",
      [&](CLI::App& app) {
        app.add_option_function<std::string>(
               "--act", [&flags](const std::string& name) { flags.act = kActs.at(name); },
               "On an alarm: only print it (ignore), freeze the learning rate (stop), or "
               "also end with the mean of the last copies of the weights (average)")
            ->check(CLI::IsMember({"ignore", "stop", "average"}))
            ->default_str("average");
        const auto positive = CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max());
        app.add_option("--average-every", every,
                       "Steps between copies of the weights [a fiftieth of the run]")
            ->check(CLI::Validator(positive).description("INT >= 1"));
        app.add_option("--average-window", flags.average_window, "Copies in the mean")
            ->check(CLI::Range(int64_t{1}, int64_t{1000}, "1..1000"))
            ->capture_default_str();
      });
  flags.average_every = every.value_or(std::max<int64_t>(1, flags.recipe.schedule.steps / 50));
  return flags;
}

}  // namespace ptqwatch::examples
