#include "trajectory/recipes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "trajectory/checkpoint_name.h"
#include "trajectory/lr_schedule.h"

namespace ptqwatch::internal {
namespace recipes_test {

constexpr char kPath[] = PTQWATCH_SOURCE_DIR "/docs/recipes.md";
constexpr char kIntroduction[] = R"(# Recipes of published runs

<!-- Generated from libmonitor/trajectory/recipes.cc: PTQWATCH_WRITE_DOCS=1 trajectory_test -->

`ptqwatch trajectory --schedule pythia-160m` knows how the learning rate of that run went: each name stands for the [schedules](trajectory.md#the-learning-rate) of its row. They serve the branches that
they name, or checkpoints without a branch, and no others. Revisions are examples, `hf download MODEL --revision REVISION` gets one.

- Each number is in the sources or follows from them: a step is a number of tokens divided by the tokens a step, in whole steps, and a decay of n steps ends n steps after it begins.
- Pythia was trained with GPT-NeoX v1.0. Its cosine heads for 0 and stops at `min_lr`, a tenth of the peak, which it reaches at step 115,139. The formula that reaches it at step 143,000 came to GPT-NeoX in
  August 2023, after these models. `EleutherAI/pythia-160m-deduped` and the like have the same schedules.
- SmolLM3's stages are branches. With a CSV file whose column `branch` is empty they are one run, which `smollm3` serves too.
- OLMo 2: the names of some revisions of the first stage lack `stage1-`; a CSV file puts all into one branch. The second stages of 1B and 7B start from the rate in their configurations, those of 32B from
  the rate that the first stage has reached.
- OLMo 3 7B: the cosine was stretched from 5 to 7 trillion tokens when half of it was done. The report's Table 35 gives the peak of the later stages as 2.074e-4, the scripts 2.0712e-4.
- OLMoE's `main` comes from 23,842 further steps, in a straight line from 4e-5 to 0 (`olmoe-8x1b-newhp-newds-final-anneal.yml`), and has no step in its name. A CSV file gives it step 23842 and the branch
  `anneal`, and `--schedule anneal=linear:peak=4e-5,end=23842` its rate.

Not listed, as sources disagree or do not tell: Pythia 1B (peak 2.5e-4 in its configuration, 3e-4 in the README), Pythia 14M and 31M (of November 2023: which formula?), OLMo 2 13B (its configuration's peak of 3e-4
does not lead to the 9e-5 from which its second stages start), OLMo 3 32B (how many steps an epoch has), SmolLM3's `lc-32k-to-64k` (where its steps begin), Amber (names count pieces of data, not steps).

| name | model | revisions | schedules | tokens a step | source |
| --- | --- | --- | --- | --- | --- |
)";

std::vector<std::string> Words(std::string_view text) {
  return absl::StrSplit(std::string(text), ' ');
}

// `text` in a cell, each word on a line of its own.
std::string Lines(std::string_view text) {
  return "`" + absl::StrReplaceAll(std::string(text), {{" ", "`<br>`"}}) + "`";
}

double RateOf(const std::string& recipe, const std::string& branch, int64_t step) {
  return LrSchedules::Parse({recipe})->Of(branch)->RateAt(step);
}

// With PTQWATCH_WRITE_DOCS set, writes the page instead of comparing it.
TEST(Recipes, AreThoseOfTheDocument) {
  std::string expected = kIntroduction;
  for (const Recipe& recipe : Recipes()) {
    expected += StrCat("| `", recipe.name, "` | ", recipe.model, " | ", Lines(recipe.revisions),
                       " | ", Lines(recipe.schedules), " | ", recipe.tokens_per_step, " | ",
                       recipe.source, " |\n");
  }
  if (std::getenv("PTQWATCH_WRITE_DOCS") != nullptr) {
    std::ofstream(kPath) << expected;
    return;
  }
  std::stringstream text;
  text << std::ifstream(kPath).rdbuf();
  EXPECT_EQ(text.str(), expected) << "docs/recipes.md is out of date: see its comment. Expected:\n"
                                  << expected;
}

TEST(Recipes, HaveSchedulesForTheBranchesOfTheirRevisions) {
  std::set<std::string_view> names;
  for (const Recipe& recipe : Recipes()) {
    EXPECT_TRUE(names.insert(recipe.name).second) << recipe.name;
    EXPECT_EQ(FindRecipe(recipe.name), &recipe);
    const auto schedules = LrSchedules::Parse({std::string(recipe.name)});
    ASSERT_TRUE(schedules.ok()) << recipe.name << schedules.status();
    std::set<std::string> branches;
    for (const std::string& revision : Words(recipe.revisions)) {
      const auto checkpoint = ParseCheckpointName(revision);
      ASSERT_TRUE(checkpoint) << revision;
      EXPECT_NE(schedules->Of(checkpoint->branch), nullptr) << revision;
      branches.insert(checkpoint->branch);
    }
    for (const std::string& schedule : Words(recipe.schedules)) {
      const std::string branch = schedule.substr(0, schedule.find_first_of(":="));
      const bool named = schedule[branch.size()] == '=';
      EXPECT_TRUE(!named || branches.count(branch) == 1) << recipe.name << " " << branch;
    }
    EXPECT_EQ(schedules->Of("other"), nullptr) << recipe.name;
  }
}

// Numbers of other places in the sources than the schedule.
TEST(Recipes, AgreeWithWhatElseTheirSourcesSay) {
  // The second stages of OLMo 2 start where the first ones left off.
  EXPECT_NEAR(RateOf("olmo2-1b", "stage1", 1'907'359), 7.4487e-5, 1e-9);
  EXPECT_NEAR(RateOf("olmo2-7b", "stage1", 928'000), 6.1499e-5, 1e-9);
  EXPECT_NEAR(RateOf("olmo2-32b", "stage1", 721'901), 6.6232e-5, 1e-9);
  // OLMo 3's report: half of the cosine was done when it was stretched.
  EXPECT_DOUBLE_EQ(RateOf("olmo3-7b", "stage1", 597'046), (3e-4 + 3e-5) / 2);
  // GPT-NeoX v1.0: 6e-4 / 2 * (cos(pi * (100000 - 1430) / 143000) + 1).
  EXPECT_NEAR(RateOf("pythia-160m", "", 100'000), 1.31921e-4, 1e-9);
  EXPECT_GT(RateOf("pythia-160m", "", 115'138), 6e-5);
  EXPECT_EQ(RateOf("pythia-160m", "", 115'139), 6e-5);
  EXPECT_EQ(RateOf("pythia-160m", "", 143'000), 6e-5);
  // A tenth of the peak is left at the end of each Pythia.
  for (const Recipe& recipe : Recipes()) {
    const std::string name(recipe.name);
    if (name.rfind("pythia-", 0) != 0) continue;
    EXPECT_DOUBLE_EQ(RateOf(name, "", 143'000), RateOf(name, "", 1430) / 10) << name;
  }
  // Apertus decays for 197,219 steps.
  EXPECT_EQ(RateOf("apertus-8b", "", 2'627'139 - 197'219), 1.1e-4);
  EXPECT_EQ(RateOf("apertus-8b", "", 2'627'139), 1.1e-5);
}

}  // namespace recipes_test
}  // namespace ptqwatch::internal
