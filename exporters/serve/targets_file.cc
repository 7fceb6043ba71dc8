#include "serve/targets_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/host_name.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace ptqwatch::internal {
namespace {

namespace fs = std::filesystem;

// An address at which other machines reach the server, too.
std::string TargetOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::string name = HostName();
  const bool wildcard = host == "0.0.0.0" || host == "[::]";
  return wildcard && !name.empty() ? name + address.substr(colon) : address;
}

absl::Status Replace(const std::string& path, const std::string& content) {
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PTQWATCH_RETURN_IF_ERROR(file.Append(content));
  PTQWATCH_RETURN_IF_ERROR(file.CommitUnsynced());
  // Prometheus is another user, and a server beside a trainer has a umask of 077.
  std::error_code error;
  fs::permissions(path, fs::perms::group_read | fs::perms::others_read, fs::perm_options::add,
                  error);
  return error ? absl::ErrnoToStatus(error.value(), "cannot make it readable") : absl::OkStatus();
}

}  // namespace

TargetsFile::TargetsFile(std::string path, std::string content)
    : path_(std::move(path)), content_(std::move(content)) {}

absl::StatusOr<std::unique_ptr<TargetsFile>> TargetsFile::Write(const std::string& path,
                                                                const std::string& address,
                                                                bool tls) {
  nlohmann::ordered_json group = {{"targets", nlohmann::ordered_json::array({TargetOf(address)})}};
  if (tls) group["labels"] = {{"__scheme__", "https"}};
  std::string content = nlohmann::ordered_json::array({std::move(group)}).dump() + "\n";
  std::error_code error;
  // Absolute, because the working directory may change.
  const fs::path absolute = fs::absolute(path, error);
  const std::string target = error ? path : absolute.string();
  if (const absl::Status written = Replace(target, content); !written.ok()) {
    return absl::Status(written.code(),
                        StrCat("ServeOptions.targets_file = '", path, "': ", Message(written)));
  }
  return std::unique_ptr<TargetsFile>(new TargetsFile(target, std::move(content)));
}

TargetsFile::~TargetsFile() {
  std::ifstream file(path_, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  std::error_code ignored;
  if (content == content_) fs::remove(path_, ignored);
}

}  // namespace ptqwatch::internal
