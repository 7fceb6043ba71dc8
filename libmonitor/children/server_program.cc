#include "children/server_program.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "base/net_address.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

namespace fs = std::filesystem;

constexpr char kProgramName[] = "ptqwatch";
constexpr char kNotFound[] =
    "no program `ptqwatch` in the folder of this program, beside libptqwatch or on the PATH: build "
    "the target `ptqwatch`, install the package `ptqwatch`, or set ServeOptions.program or "
    "PTQWATCH_PROGRAM";

absl::Status CheckProgram(const std::string& path, std::string_view from) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, StrCat(from, " = '", path, "'"));
  }
  const char* why = nullptr;
  if (!S_ISREG(info.st_mode) || access(path.c_str(), X_OK) != 0) {
    why = "is not a program";
  } else if ((info.st_uid != 0 && info.st_uid != geteuid()) ||
             (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = "may be written by other users; chmod go-w";
  }
  if (why == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(from, " = '", path, "' ", why));
}

// Where to look for the program if the user does not say.
std::vector<std::string> UsualPlaces() {
  std::vector<std::string> places;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) places.push_back(self.parent_path() / kProgramName);
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&FindServerProgram), &library) != 0 &&
      library.dli_fname != nullptr) {
    const fs::path file = fs::canonical(library.dli_fname, error);
    if (!error) {
      // The library is in lib/ or lib/ARCHITECTURE/.
      for (fs::path folder = file.parent_path(); folder.has_relative_path();
           folder = folder.parent_path()) {
        if (folder.filename() != "lib") continue;
        places.push_back(folder.parent_path() / "bin" / kProgramName);
        break;
      }
    }
  }
  if (const char* path = secure_getenv("PATH")) {
    for (const auto folder : absl::StrSplit(path, ':')) {
      if (!folder.empty() && folder[0] == '/') places.push_back(StrCat(folder, "/", kProgramName));
    }
  }
  return places;
}

bool IsInherited(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  for (const std::string_view kept : {"HOME", "PATH", "LANG", "TZ", "TMPDIR"}) {
    if (name == kept) return true;
  }
  return name.starts_with("LC_") || name.starts_with("SSL_CERT_");
}

// Whether the host is a numeric address that other machines can reach. The server resolves names.
bool IsRemoteNumber(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 != IN_LOOPBACKNET;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && !IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status CheckAddress(const char* field, const std::string& address, bool allow_remote) {
  if (address.empty()) return absl::OkStatus();
  PTQWATCH_ASSIGN_OR_RETURN(const HostPort parsed,
                            ParseListenAddress(StrCat("ServeOptions.", field), address));
  if (allow_remote || !IsRemoteNumber(parsed.host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("ServeOptions.", field, " = '", address,
             "' is not a loopback address, and ServeOptions.allow_remote "
             "is false"));
}

}  // namespace

absl::StatusOr<std::string> FindServerProgram(const std::string& wanted) {
  if (getauxval(AT_SECURE) != 0) {
    return absl::FailedPreconditionError(
        "a process with more rights than its caller must not start a server");
  }
  const char* const set = secure_getenv("PTQWATCH_PROGRAM");
  const bool by_environment = wanted.empty() && set != nullptr && *set != '\0';
  if (!wanted.empty() || by_environment) {
    std::error_code error;
    const std::string path = fs::absolute(by_environment ? set : wanted, error);
    PTQWATCH_RETURN_IF_ERROR(
        CheckProgram(path, by_environment ? "PTQWATCH_PROGRAM" : "ServeOptions.program"));
    return path;
  }
  absl::Status refused;
  for (const std::string& path : UsualPlaces()) {
    const absl::Status usable = CheckProgram(path, "the program");
    if (usable.ok()) return path;
    if (absl::IsFailedPrecondition(usable)) refused.Update(usable);
  }
  PTQWATCH_RETURN_IF_ERROR(refused);
  return absl::NotFoundError(kNotFound);
}

std::string ServedDirectory::served() const {
  return of_rank ? fs::path(run_dir).parent_path().string() : run_dir;
}

std::string WhyAnotherServes(int64_t rank) {
  // A job launcher's own variable takes precedence over the batch system's.
  for (const char* variable :
       {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const char* const local = getenv(variable);
    if (local == nullptr || *local == '\0') continue;
    return std::string_view(local) == "0" ? "" : StrCat(variable, " is ", local);
  }
  return rank == 0 ? "" : StrCat("its rank is ", rank);
}

std::vector<std::string> ServerEnvironment(const ServeOptions& options) {
  std::vector<std::string> kept;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (IsInherited(*variable)) kept.emplace_back(*variable);
  }
  for (const auto& [name, value] : options.environment) kept.push_back(StrCat(name, "=", value));
  return kept;
}

std::vector<std::string> ServerArguments(const ServeOptions& options,
                                         const ServedDirectory& directory, int trainer) {
  const auto address = [](const std::string& text) { return text.empty() ? "off" : text; };
  std::vector<std::string> arguments = {"serve",
                                        StrCat("--http=", address(options.http)),
                                        StrCat("--grpc=", address(options.grpc)),
                                        StrCat("--max-layers=", options.max_layers),
                                        StrCat("--beside=", trainer),
                                        StrCat("--linger=", options.linger.count()),
                                        StrCat("--max-memory=", options.max_memory)};
  const auto add_if = [&](bool set, const char* flag) {
    if (set) arguments.emplace_back(flag);
  };
  const auto add_file = [&](const char* flag, const std::string& path) {
    if (!path.empty()) arguments.push_back(StrCat(flag, "=", path));
  };
  add_if(options.allow_remote, "--allow-remote");
  add_if(options.allow_control, "--allow-control");
  add_if(directory.remove, "--remove");
  add_if(directory.of_rank, "--of-rank");
  for (const std::string& host : options.allowed_hosts) {
    arguments.push_back(StrCat("--allow-host=", host));
  }
  add_file("--tls-cert", options.security.certificate_file);
  add_file("--tls-key", options.security.private_key_file);
  add_file("--client-ca", options.security.client_ca_file);
  add_file("--token-file", options.security.token_file);
  add_file("--targets", options.targets_file);
  arguments.emplace_back("--");
  arguments.push_back(directory.run_dir);
  return arguments;
}

}  // namespace ptqwatch::internal

namespace ptqwatch {

absl::Status Validate(const ServeOptions& options) {
  using internal::StrCat;
  PTQWATCH_RETURN_IF_ERROR(internal::CheckAddress("http", options.http, options.allow_remote));
  PTQWATCH_RETURN_IF_ERROR(internal::CheckAddress("grpc", options.grpc, options.allow_remote));
  if (options.http.empty() && options.grpc.empty()) {
    return absl::InvalidArgumentError(
        "ServeOptions.http and ServeOptions.grpc are both empty: nothing is left to serve");
  }
  if (!options.targets_file.empty() && options.http.empty()) {
    return absl::InvalidArgumentError(StrCat("ServeOptions.targets_file = '", options.targets_file,
                                             "' is for ServeOptions.http, which is empty"));
  }
  if (options.max_layers < 0) {
    return absl::InvalidArgumentError(
        StrCat("ServeOptions.max_layers = ", options.max_layers, "; expected 0 or more"));
  }
  if (options.linger.count() < 0) {
    return absl::InvalidArgumentError(
        StrCat("ServeOptions.linger = ", options.linger.count(), " s; expected 0 or more"));
  }
  if (options.max_memory < int64_t{64} << 20) {
    return absl::InvalidArgumentError(
        StrCat("ServeOptions.max_memory = ", options.max_memory, "; expected at least 64 MiB"));
  }
  for (const auto& [name, value] : options.environment) {
    if (name.empty() || name.find_first_of("=\0", 0, 2) != std::string::npos ||
        value.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          StrCat("ServeOptions.environment has a variable named '", name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch
