#include "staging/shard_address.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

using Json = nlohmann::json;

// Equal for processes of one boot of one machine, also in containers.
std::string Host() {
  const absl::StatusOr<std::string> id = ReadTextFile("/proc/sys/kernel/random/boot_id");
  return id.ok() ? *id : std::string();
}

std::string PidNamespace() {
  std::array<char, 64> link{};
  const ssize_t length = readlink("/proc/self/ns/pid", link.data(), link.size());
  return {link.data(), static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

std::string PathOf(const ShardPlace& place) {
  return StrFormat("%s/rank-%04d.json", place.directory, place.rank);
}

// The process on this host, if it is another one and lives, whose memory has that address.
std::optional<int64_t> OwnerOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return std::nullopt;
  const Json address = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!address.is_object() || address.value("host", "") != Host() ||
      address.value("pid_namespace", "") != PidNamespace() || !address.contains("file")) {
    return std::nullopt;
  }
  const auto process = address.value("process", int64_t{0});
  if (process == getpid()) return std::nullopt;
  const std::string memory = StrCat("/proc/", process, "/fd/", address.value("file", int64_t{-1}));
  std::error_code error;
  // A process that has the number by chance has no such memory there.
  const std::string target = std::filesystem::read_symlink(memory, error).string();
  return target.starts_with("/memfd:ptqwatch") ? std::optional(process) : std::nullopt;
}

absl::Status Write(const ShardPlace& place, Json address) {
  std::error_code error;
  std::filesystem::create_directories(place.directory, error);
  if (error) return absl::UnavailableError(StrCat(place.directory, ": ", error.message()));
  address["rank"] = place.rank;
  address["job"] = place.job;
  address["host"] = Host();
  address["pid_namespace"] = PidNamespace();
  const std::string text =
      address.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(PathOf(place)));
  PTQWATCH_RETURN_IF_ERROR(file.Append(text));
  return file.CommitUnsynced();
}

}  // namespace

absl::Status ShardAddress::Publish(const ShardPlace& place, int file) {
  const std::string path = PathOf(place);
  if (const std::optional<int64_t> owner = OwnerOf(path)) {
    return absl::FailedPreconditionError(StrCat("process ", *owner, " is rank ", place.rank,
                                                " of a run in the same directory (", path,
                                                "): give this run a run_dir of its own"));
  }
  path_ = path;
  return Write(place, {{"process", getpid()}, {"file", file}});
}

void ShardAddress::Refuse(const ShardPlace& place, std::string_view why) {
  Write(place, {{"process", getpid()}, {"refusal", why}}).IgnoreError();
}

void ShardAddress::Withdraw() noexcept {
  if (path_.empty() || !process_.here()) return;
  unlink(path_.c_str());
  // Fails unless it was the last one.
  std::error_code ignored;
  std::filesystem::remove(std::filesystem::path(path_).parent_path(), ignored);
}

ShardsFound FindShards(const ShardPlace& place) {
  ShardsFound found;
  const std::string host = Host();
  const std::string pid_namespace = PidNamespace();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(place.directory, error)) {
    if (entry.path().extension() != ".json") continue;
    const absl::StatusOr<std::string> text = ReadTextFile(entry.path().string());
    if (!text.ok()) continue;
    try {
      const Json address = Json::parse(*text);
      if (address.at("job") != place.job || address.at("host") != host) continue;
      const auto rank = address.at("rank").get<int64_t>();
      const std::string process = StrCat("/proc/", address.at("process").get<int64_t>());
      if (address.at("pid_namespace") != pid_namespace) {
        found.problems[rank] =
            "its process is in another PID namespace (a container of its own), where its memory "
            "cannot be opened";
      } else if (!std::filesystem::exists(process, error)) {
        continue;  // left by an earlier launch
      } else if (address.contains("refusal")) {
        found.problems[rank] = address["refusal"];
      } else {
        found.memory[rank] = StrCat(process, "/fd/", address.at("file").get<int64_t>());
      }
    } catch (const Json::exception&) {
      continue;  // an earlier version's, or no address
    }
  }
  return found;
}

}  // namespace ptqwatch::internal
