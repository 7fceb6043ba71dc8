#include "trajectory/recipes.h"

#include <algorithm>
#include <iterator>

namespace ptqwatch::internal {
namespace {

// GPT-NeoX v1.0 heads for 0 at lr-decay-iters after the warm-up, and goes no lower than min_lr.
constexpr std::string_view kPythiaSource =
    "`EleutherAI/pythia`: `models/*/pythia-*.yml`, `README.md`; `EleutherAI/gpt-neox` v1.0: "
    "`megatron/learning_rates.py`";
constexpr std::string_view kSmolLm2Source =
    "`huggingface/smollm`, `text/pretraining/smollm2`: `config_smollm2_*.yaml`; the model card";

constexpr Recipe kRecipes[] = {
    {.name = "pythia-70m",
     .model = "EleutherAI/pythia-70m",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=1e-3,warmup=1430,end=144430,floor=1e-4",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "pythia-160m",
     .model = "EleutherAI/pythia-160m",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=6e-4,warmup=1430,end=144430,floor=6e-5",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "pythia-410m",
     .model = "EleutherAI/pythia-410m",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=3e-4,warmup=1430,end=144430,floor=3e-5",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "pythia-1.4b",
     .model = "EleutherAI/pythia-1.4b",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=2e-4,warmup=1430,end=144430,floor=2e-5",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "pythia-2.8b",
     .model = "EleutherAI/pythia-2.8b",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=1.6e-4,warmup=1430,end=144430,floor=1.6e-5",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "pythia-6.9b",
     .model = "EleutherAI/pythia-6.9b",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=1.2e-4,warmup=1430,end=144430,floor=1.2e-5",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "pythia-12b",
     .model = "EleutherAI/pythia-12b",
     .revisions = "step0 step512 step143000",
     .schedules = "cosine:peak=1.2e-4,warmup=1430,end=144430,floor=1.2e-5",
     .tokens_per_step = "2,097,152",
     .source = kPythiaSource},
    {.name = "smollm2-135m",
     .model = "HuggingFaceTB/SmolLM2-135M-intermediate-checkpoints",
     .revisions = "step-240000",
     .schedules = "wsd:peak=3e-3,warmup=2000,decay_start=1600000,end=2000000",
     .tokens_per_step = "1,048,576",
     .source = kSmolLm2Source},
    {.name = "smollm2-360m",
     .model = "HuggingFaceTB/SmolLM2-360M-intermediate-checkpoints",
     .revisions = "step-160000",
     .schedules = "wsd:peak=3e-3,warmup=2000,decay_start=2080000,end=2600000",
     .tokens_per_step = "1,572,864",
     .source = kSmolLm2Source},
    {.name = "smollm2-1.7b",
     .model = "HuggingFaceTB/SmolLM2-1.7B-intermediate-checkpoints",
     .revisions = "step-125000",
     .schedules = "wsd:peak=5e-4,warmup=2000,decay_start=4716000,end=5240000",
     .tokens_per_step = "2,097,152",
     .source = kSmolLm2Source},
    {.name = "smollm3",
     .model = "HuggingFaceTB/SmolLM3-3B-checkpoints",
     .revisions = "stage1-step-40000 "
                  "stage2-step-4200000 "
                  "stage3-step-4720000 "
                  "lc-4k-to-32k-step-20000",
     .schedules = "wsd:peak=2e-4,warmup=2000,decay_start=4198001,end=4720001 "
                  "stage1=wsd:peak=2e-4,warmup=2000,decay_start=4198001,end=4720001 "
                  "stage2=wsd:peak=2e-4,warmup=2000,decay_start=4198001,end=4720001 "
                  "stage3=wsd:peak=2e-4,warmup=2000,decay_start=4198001,end=4720001 "
                  "lc-4k-to-32k=cosine:peak=2e-5,warmup=1000,end=20000",
     .tokens_per_step = "2,359,296",
     .source =
         "`huggingface/smollm`, `text/pretraining/smollm3`: `stage1_8T.yaml`, `stage2_8T_9T.yaml`, "
         "`stage3_9T_11T.yaml`, `long_context_4k_to_32k.yaml`; the model card"},
    {.name = "olmo2-1b",
     .model = "allenai/OLMo-2-0425-1B",
     .revisions = "stage1-step1907359-tokens4001B "
                  "stage2-ingredient1-step23852-tokens51B "
                  "stage2-ingredient2-step23852-tokens51B "
                  "stage2-ingredient3-step23852-tokens51B",
     .schedules = "cosine:peak=4e-4,warmup=4000,end=2384186,final=4e-5 "
                  "stage1=cosine:peak=4e-4,warmup=4000,end=2384186,final=4e-5 "
                  "stage2-ingredient1=linear:peak=7.4487e-5,end=23842 "
                  "stage2-ingredient2=linear:peak=7.4487e-5,end=23842 "
                  "stage2-ingredient3=linear:peak=7.4487e-5,end=23842",
     .tokens_per_step = "2,097,152",
     .source = "`allenai/OLMo`, `configs/official-0425`: `OLMo2-1B-stage1.yaml`, "
               "`OLMo2-1B-stage2-seed*.yaml`; its "
               "`README.md`"},
    {.name = "olmo2-7b",
     .model = "allenai/OLMo-2-1124-7B",
     .revisions = "step150-tokens1B "
                  "stage1-step928646-tokens3896B "
                  "stage2-ingredient1-step11931-tokens50B "
                  "stage2-ingredient2-step11931-tokens50B "
                  "stage2-ingredient3-step11931-tokens50B",
     .schedules = "cosine:peak=3e-4,warmup=2000,end=1192093,final=3e-5 "
                  "stage1=cosine:peak=3e-4,warmup=2000,end=1192093,final=3e-5 "
                  "stage2-ingredient1=linear:peak=6.1499e-5,end=11921 "
                  "stage2-ingredient2=linear:peak=6.1499e-5,end=11921 "
                  "stage2-ingredient3=linear:peak=6.1499e-5,end=11921",
     .tokens_per_step = "4,194,304",
     .source = "`allenai/OLMo`, `configs/official-1124`: `OLMo2-7B-stage1.yaml`, "
               "`OLMo2-7B-stage2-seed*.yaml`; its "
               "`README.md`"},
    {.name = "olmo2-32b",
     .model = "allenai/OLMo-2-0325-32B",
     .revisions = "stage1-step721901-tokens6056B "
                  "stage2-ingredient1-step11921-tokens101B "
                  "stage2-ingredient2-step11921-tokens101B "
                  "stage2-ingredient3-step35763-tokens301B",
     .schedules = "cosine:peak=6e-4,warmup=2000,end=774861,final=6e-5 "
                  "stage1=cosine:peak=6e-4,warmup=2000,end=774861,final=6e-5 "
                  "stage2-ingredient1=linear:peak=6.6232e-5,end=11921 "
                  "stage2-ingredient2=linear:peak=6.6232e-5,end=11921 "
                  "stage2-ingredient3=linear:peak=6.6232e-5,end=35763",
     .tokens_per_step = "8,388,608",
     .source = "`allenai/OLMo-core`, `src/scripts/official/OLMo2`: `OLMo-2-0325-32B-train.py`, "
               "`OLMo-2-0325-32B-anneal.py`, `README.md`"},
    {.name = "olmo3-7b",
     .model = "allenai/Olmo-3-1025-7B",
     .revisions = "stage1-step1413814 "
                  "stage2-step47684 "
                  "stage3-step11921",
     .schedules = "stage1=cosine:peak=3e-4,warmup=2000,middle=597046,end=1668931,final=3e-5 "
                  "stage2=linear:peak=2.0712e-4,end=47684 "
                  "stage3=linear:peak=2.0712e-4,warmup=200,end=11921",
     .tokens_per_step = "4,194,304; stage2 2,097,152",
     .source = "`allenai/OLMo-core`, `src/scripts/official/OLMo3`: `OLMo-3-1025-7B-pretrain-1.py`, "
               "`OLMo-3-1025-7B-pretrain-2.py`, `OLMo-3-1025-7B-midtrain.py`, "
               "`OLMo-3-1025-7B-long-context.py`, `OLMo-3-1025-7B.csv`; stage3's end: arXiv "
               "2512.13961, Table 35"},
    {.name = "olmoe-1b-7b",
     .model = "allenai/OLMoE-1B-7B-0924",
     .revisions = "step5000-tokens20B step1220000-tokens5117B",
     .schedules = "cosine:peak=4e-4,warmup=2500,end=1192093,final=4e-5",
     .tokens_per_step = "4,194,304",
     .source = "`allenai/OLMoE`: `configs/OLMoE-1B-7B-0924.yml`, `README.md`"},
    {.name = "apertus-8b",
     .model = "swiss-ai/Apertus-8B-2509",
     .revisions = "step50000-tokens210B step2627139-tokens15T",
     .schedules =
         "wsd:peak=1.1e-4,warmup=4000,decay_start=2429920,end=2627139,final=1.1e-5,shape=1-sqrt",
     .tokens_per_step = "4,194,304; from step 1,678,000 on 8,388,608",
     .source = "`swiss-ai/pretrain-code`: `pretraining/submit_apertus_8b.sh`"},
};

}  // namespace

absl::Span<const Recipe> Recipes() { return kRecipes; }

const Recipe* FindRecipe(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kRecipes), std::end(kRecipes),
                   [name](const Recipe& recipe) { return recipe.name == name; });
  return found == std::end(kRecipes) ? nullptr : found;
}

}  // namespace ptqwatch::internal
