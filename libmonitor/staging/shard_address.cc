#include "staging/shard_address.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_split.h"
#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kTrustedRefusal{10};

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

// Launchers' hosts may be containers of one machine.
std::string JobOnHost(const ShardPlace& place) { return StrCat(place.job, ":", place.host); }

std::string PathOf(const ShardPlace& place) {
  return StrFormat("%s/rank-%04d.json", place.directory, place.rank);
}

// Beside an address, which may be that of a rank of another run.
std::string RefusalPathOf(const ShardPlace& place) {
  return StrFormat("%s/rank-%04d-refusal.json", place.directory, place.rank);
}

// When a process began, in the kernel's clock ticks: a number of a process may be used again. Empty
// if there is none.
std::string BeginOf(int64_t process) {
  const absl::StatusOr<std::string> stat = ReadTextFile(StrCat("/proc/", process, "/stat"));
  if (!stat.ok()) return "";
  // Its name, in brackets, is the second field; the 22nd is wanted.
  const std::vector<std::string> fields = absl::StrSplit(stat->substr(stat->rfind(')') + 1), ' ');
  return fields.size() > 20 ? fields[20] : "";
}

Json AddressIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Json();
  Json address = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  try {  // an earlier version's, or no address at all
    (void)address.at("rank").get<int64_t>();
    (void)address.at("process").get<int64_t>();
    for (const char* name : {"job", "host", "pid_namespace", "began"}) {
      (void)address.at(name).get<std::string>();
    }
    if (!address.contains("refusal")) (void)address.at("file").get<int64_t>();
    return address;
  } catch (const Json::exception&) {
    return Json();
  }
}

bool Lives(const Json& address) {
  return BeginOf(address["process"]) == address["began"].get<std::string>();
}

// The process on this host, if it is another one and lives, that has that address.
std::optional<int64_t> OwnerOf(const std::string& path) {
  const Json address = AddressIn(path);
  if (address.is_null() || address["host"] != Host() ||
      address["pid_namespace"] != PidNamespace() || address["process"] == getpid() ||
      !Lives(address)) {
    return std::nullopt;
  }
  return address["process"].get<int64_t>();
}

// Addresses in files whose names end so.
std::vector<Json> AddressesIn(const std::string& directory, std::string_view ending) {
  std::vector<Json> addresses;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().string().ends_with(ending)) continue;
    Json address = AddressIn(entry->path().string());
    if (!address.is_null()) addresses.push_back(std::move(address));
  }
  return addresses;
}

void Remove(const std::string& path) {
  unlink(path.c_str());
  // Fails unless it was the last one.
  std::error_code ignored;
  std::filesystem::remove(std::filesystem::path(path).parent_path(), ignored);
}

absl::Status Write(const std::string& path, const ShardPlace& place, Json address) {
  std::error_code error;
  std::filesystem::create_directories(place.directory, error);
  if (error) return absl::UnavailableError(StrCat(place.directory, ": ", error.message()));
  address["process"] = getpid();
  address["began"] = BeginOf(getpid());
  address["rank"] = place.rank;
  address["job"] = JobOnHost(place);
  address["host"] = Host();
  address["pid_namespace"] = PidNamespace();
  const std::string text =
      address.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
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
  unlink(RefusalPathOf(place).c_str());
  PTQWATCH_RETURN_IF_ERROR(Write(path, place, {{"file", file}}));
  path_ = path;
  file_ = file;
  return absl::OkStatus();
}

void ShardAddress::Refuse(const ShardPlace& place, std::string_view why) {
  Write(RefusalPathOf(place), place, {{"refusal", why}}).IgnoreError();
}

void ShardAddress::WithdrawRefusal(const ShardPlace& place) noexcept {
  const std::string path = RefusalPathOf(place);
  const Json address = AddressIn(path);
  if (!address.is_null() && address["process"] == getpid()) Remove(path);
}

void ShardAddress::Withdraw() noexcept {
  if (path_.empty() || !process_.here()) return;
  const Json address = AddressIn(path_);
  if (!address.is_null() && address["process"] == getpid() && address.contains("file") &&
      address["file"] == file_) {
    Remove(path_);
  }
}

ShardsFound FindShards(const ShardPlace& place) {
  ShardsFound found;
  const std::string host = Host();
  const std::string job = JobOnHost(place);
  const std::string pid_namespace = PidNamespace();
  for (const Json& address : AddressesIn(place.directory, ".json")) {
    if (address["job"] != job || address["host"] != host) continue;
    const auto rank = address["rank"].get<int64_t>();
    if (address["pid_namespace"] != pid_namespace) {
      found.unreachable.push_back(rank);
    } else if (!Lives(address)) {
      continue;  // left by an earlier launch
    } else if (address.contains("refusal")) {
      found.refusals[rank] = address["refusal"];
    } else {
      found.memory[rank] = StrCat("/proc/", address["process"].get<int64_t>(), "/fd/",
                                  address["file"].get<int64_t>());
    }
  }
  return found;
}

std::string RefusalWatch::Look(std::chrono::steady_clock::time_point now) {
  const std::string machine = Host();
  const std::string pid_namespace = PidNamespace();
  for (const Json& address : AddressesIn(place_.directory, "-refusal.json")) {
    const auto job = address["job"].get<std::string>();
    if (!job.starts_with(place_.job + ":") || !address.contains("refusal")) continue;
    const bool near = address["host"] == machine && address["pid_namespace"] == pid_namespace;
    if (near && !Lives(address)) continue;
    const auto seen = seen_.emplace(address.dump(), now).first->second;
    if (near || now - seen >= kTrustedRefusal) {
      return StrCat(
          "rank ", address["rank"].get<int64_t>(),
          " does not share its part of the model: ", address["refusal"].get<std::string>());
    }
  }
  return "";
}

}  // namespace ptqwatch::internal
