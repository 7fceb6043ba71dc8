#include "models/stored_tensors.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

// torch.compile, torch's checkpoint_wrapper, FSDP1 and Lightning Fabric.
std::string WithoutWrappers(const std::string& name) {
  return absl::StrReplaceAll(name, {{"_orig_mod.", ""},
                                    {"_checkpoint_wrapped_module.", ""},
                                    {"_fsdp_wrapped_module.", ""},
                                    {"_forward_module.", ""}});
}

// "embed_tokens.weight" of "model.embed_tokens.weight".
std::string_view WithoutBase(std::string_view name) { return name.substr(name.find('.') + 1); }

// The tensors whose names tell which prefix the others have; the embedding may be stored as the
// head.
std::vector<std::string_view> Anchors(const TensorNames& names) {
  std::vector<std::string_view> anchors;
  for (const std::string_view name :
       {names.embedding, names.head, names.other_head, WithoutBase(names.embedding)}) {
    if (!name.empty()) anchors.push_back(name);
  }
  return anchors;
}

// The prefix of a module that holds the model; empty if there is none.
absl::StatusOr<std::string> PrefixOf(const StoredTensors& stored, const TensorNames& names) {
  for (const std::string_view anchor : Anchors(names)) {
    if (stored.find(anchor) != stored.end()) return std::string();
    std::vector<std::string> prefixes;
    for (const auto& [name, tensor] : stored) {
      if (!name.ends_with(StrCat(".", anchor))) continue;
      prefixes.push_back(name.substr(0, name.size() - anchor.size()));
    }
    if (prefixes.size() == 1) return std::move(prefixes.front());
    if (prefixes.empty()) continue;
    return absl::InvalidArgumentError(StrCat("there are several models in it, with the prefixes '",
                                             absl::StrJoin(prefixes, "', '"),
                                             "'; save the one to measure alone"));
  }
  return std::string();
}

absl::StatusOr<StoredTensors> Renamed(const StoredTensors& stored, const auto& rename) {
  StoredTensors renamed;
  for (const auto& [name, tensor] : stored) {
    const auto [entry, is_new] = renamed.emplace(rename(name), tensor);
    if (is_new) continue;
    return absl::InvalidArgumentError(StrCat("tensors ", Quoted(entry->second.name), " and ",
                                             Quoted(tensor.name), " are both ",
                                             Quoted(entry->first)));
  }
  return renamed;
}

// A base model without its head is saved without its prefix, too.
absl::StatusOr<StoredTensors> WithBasePrefix(StoredTensors stored, const TensorNames& names) {
  const std::string_view rest = WithoutBase(names.embedding);
  if (stored.find(names.embedding) != stored.end() || stored.find(rest) == stored.end()) {
    return stored;
  }
  const std::string_view base = names.embedding.substr(0, names.embedding.size() - rest.size());
  return Renamed(stored, [&](const std::string& name) {
    const bool outside = name == names.head || name == names.other_head || name.starts_with(base);
    return outside ? name : StrCat(base, name);
  });
}

void MergeTiedHead(const ModelConfig& config, StoredTensors& stored) {
  if (!config.tied_head) return;
  for (const std::string_view name : {config.names.head, config.names.other_head}) {
    const auto head = name.empty() ? stored.end() : stored.find(name);
    if (head == stored.end()) continue;
    const auto embedding = stored.find(config.names.embedding);
    const bool same = embedding != stored.end() && embedding->second.file == head->second.file &&
                      embedding->second.name == head->second.name;
    if (!same && embedding != stored.end()) continue;
    StoredTensor tensor = std::move(head->second);
    stored.erase(head);
    stored.insert_or_assign(std::string(config.names.embedding), std::move(tensor));
  }
}

}  // namespace

absl::StatusOr<StoredTensors> WithNamesOfFamily(const StoredTensors& stored,
                                                const ModelConfig& config) {
  PTQWATCH_ASSIGN_OR_RETURN(StoredTensors named, Renamed(stored, WithoutWrappers));
  PTQWATCH_ASSIGN_OR_RETURN(const std::string prefix, PrefixOf(named, config.names));
  PTQWATCH_ASSIGN_OR_RETURN(named, Renamed(named, [&prefix](const std::string& name) {
                              return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
                            }));
  PTQWATCH_ASSIGN_OR_RETURN(named, WithBasePrefix(std::move(named), config.names));
  MergeTiedHead(config, named);
  return named;
}

}  // namespace ptqwatch::internal
