#include "checkpoint/folder_format.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "base/strings.h"
#include "base/text_file.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string, std::less<>>;

Names NamesIn(const std::string& folder) {
  Names names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  return names;
}

// Trainers write these beside the weights.
bool IsTrainerState(std::string_view name) {
  for (const std::string_view start :
       {"optimizer", "scheduler", "scaler", "rng_state", "training_args", "random_states"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

// The first name with one of these ends, training state apart; empty if there is none.
std::string FirstThatEnds(const Names& names, std::initializer_list<std::string_view> ends) {
  const auto found = std::find_if(names.begin(), names.end(), [&](std::string_view name) {
    return !IsTrainerState(name) &&
           std::any_of(ends.begin(), ends.end(),
                       [name](std::string_view end) { return name.ends_with(end); });
  });
  return found == names.end() ? "" : *found;
}

std::string FirstThatStarts(const Names& names, std::string_view start) {
  const auto found = names.lower_bound(start);
  return found != names.end() && found->starts_with(start) ? *found : "";
}

std::string AdapterText(const std::string& folder) {
  const auto text = ReadTextFile(StrCat(folder, "/adapter_config.json"));
  const auto config = nlohmann::json::parse(text.ok() ? *text : "", nullptr, false);
  const bool named = config.is_object() && config.contains("base_model_name_or_path") &&
                     config["base_model_name_or_path"].is_string();
  return StrCat(
      " is a PEFT adapter",
      named ? StrCat(" of ", Quoted(config["base_model_name_or_path"].get<std::string>())) : "",
      ", without the weights that it adapts; merge them: python3 -c 'from peft import "
      "AutoPeftModelForCausalLM as M; M.from_pretrained(\"",
      folder, "\").merge_and_unload().save_pretrained(\"merged\")'");
}

// Says what the folder holds and what to do, to follow its name; empty if that is not known.
std::string TextOf(const std::string& folder, const Names& names) {
  const auto has = [&names](std::string_view name) { return names.find(name) != names.end(); };
  if (has("adapter_config.json")) return AdapterText(folder);
  if (has("model.safetensors") || has("model.safetensors.index.json")) return "";
  if (has("latest_checkpointed_iteration.txt") || has("common.pt") || has("model_optim_rng.pt") ||
      (has("mp_rank_00") && !has("latest"))) {
    return " is a checkpoint of Megatron-LM; convert it with Megatron-Bridge's export_ckpt to the "
           "format of Hugging Face";
  }
  if (has("zero_to_fp32.py") || !FirstThatEnds(names, {"_model_states.pt"}).empty()) {
    return StrCat(
        " is a checkpoint of DeepSpeed; in it, python3 zero_to_fp32.py . OUTPUT "
        "--safe_serialization gathers the weights, and OUTPUT needs the model's "
        "config.json");
  }
  const std::string shards = FirstThatStarts(names, "pytorch_model_fsdp_");
  if (!shards.empty()) {
    return StrCat(" has its weights as shards of FSDP; accelerate merge-weights ", folder, "/",
                  shards, " ", folder, " gathers them");
  }
  if (has(".metadata") || !FirstThatEnds(names, {".distcp"}).empty()) {
    return StrCat(" is a distributed checkpoint of PyTorch (DCP); python3 -m ptqwatch.dcp ", folder,
                  " OUTPUT --config config.json converts it, with the model's config.json");
  }
  if (const std::string file = FirstThatEnds(names, {".gguf"}); !file.empty()) {
    return StrCat(" has ", file,
                  ", a file of llama.cpp, whose weights are quantized or renamed; the checkpoint "
                  "that it was made from is needed");
  }
  const std::string pickle = FirstThatEnds(names, {".bin", ".bin.index.json"});
  if (!pickle.empty() && has("config.json")) {
    return StrCat(" has its weights in ", pickle,
                  " alone, and pickles are not read. This converts it: python3 -c 'from "
                  "transformers import AutoModelForCausalLM as M; M.from_pretrained(\"",
                  folder, "\", dtype=\"auto\").save_pretrained(\"", folder, "\")'");
  }
  const std::string saved =
      pickle.empty() ? FirstThatEnds(names, {".pt", ".pth", ".ckpt"}) : pickle;
  if (!saved.empty()) {
    return StrCat(" has ", saved,
                  ", a pickle, and pickles are not read; load it into the model and write that "
                  "with save_pretrained, which makes config.json and model.safetensors");
  }
  if (const std::string file = FirstThatEnds(names, {".safetensors"}); !file.empty()) {
    return StrCat(" has ", file,
                  " but neither model.safetensors nor a model.safetensors.index.json that lists "
                  "it");
  }
  return "";
}

}  // namespace

absl::Status CheckFormat(const std::string& folder) {
  const std::string text = TextOf(folder, NamesIn(folder));
  return text.empty() ? absl::OkStatus() : absl::InvalidArgumentError(StrCat(Quoted(folder), text));
}

std::vector<std::string> ShardsOfRanks(const std::string& folder) {
  std::vector<std::string> shards;
  for (const std::string& name : NamesIn(folder)) {
    if (name.starts_with("shard-") && name.ends_with(".safetensors")) shards.push_back(name);
  }
  return shards;
}

}  // namespace ptqwatch::internal
