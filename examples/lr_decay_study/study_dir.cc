#include "study_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "program.h"

namespace ptqwatch::examples {
namespace {

namespace fs = std::filesystem;

constexpr char kSettings[] = "study.json";
// Children of a study that was killed end at once, and with them its lock.
constexpr int kLockAttempts = 20;
constexpr std::chrono::milliseconds kLockPause(100);

[[noreturn]] void Refuse(const fs::path& root, const std::string& why) {
  throw UsageError("--dir " + root.string() + ": " + why);
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

void Sync(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  return content.str();
}

std::string StudyDir::WeightsName(int64_t step) {
  char name[48];
  std::snprintf(name, sizeof(name), "weights-%06lld.safetensors", static_cast<long long>(step));
  return name;
}

StudyDir::~StudyDir() {
  if (lock_ >= 0) close(lock_);
}

void StudyDir::Lock() {
  // Without O_CLOEXEC: children hold it, too, so that no leg is written by two.
  lock_ = open((root_ / "lock").c_str(), O_RDWR | O_CREAT, 0644);
  if (lock_ < 0) Refuse(root_, std::strerror(errno));
  for (int i = 0; i < kLockAttempts; ++i) {
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) Refuse(root_, std::strerror(errno));
    std::this_thread::sleep_for(kLockPause);
  }
  Refuse(root_, "a study runs there");
}

void StudyDir::Take(const StudySettings& settings, std::string_view text) {
  std::error_code error;
  fs::create_directories(root_, error);
  if (error) Refuse(root_, error.message());
  const bool is_study = fs::exists(root_ / kSettings, error);
  if (!is_study) {
    for (const auto& entry : fs::directory_iterator(root_, error)) {
      const std::string name = entry.path().filename().string();
      if (name != "lock" && name != "text" && !name.ends_with(".new")) {
        Refuse(root_, "is no study's, and has " + name + " in it");
      }
    }
    if (error) Refuse(root_, error.message());
  }
  Lock();
  try {
    if (is_study) {
      const auto kept = nlohmann::ordered_json::parse(ReadFile(root_ / kSettings), nullptr, false);
      if (!kept.is_object()) Refuse(root_, std::string(kSettings) + " cannot be read");
      const std::vector<std::string> differences = Differences(kept, ToJson(settings));
      if (!differences.empty()) Refuse(root_, "was made otherwise: " + Joined(differences));
    } else {
      Write("text", text);
      Write(kSettings, ToJson(settings).dump(1) + "\n");
    }
    fs::create_directories(root_ / "legs");
    fs::create_directories(root_ / "logs");
    for (const auto& entry : fs::directory_iterator(root_ / "legs")) {
      if (entry.path().extension() == ".part") fs::remove_all(entry.path());
    }
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& failure) {
    Refuse(root_, failure.what());
  }
}

void StudyDir::Finish(const std::string& id) const {
  for (const auto& entry : fs::recursive_directory_iterator(part(id))) Sync(entry.path());
  Sync(part(id));
  fs::rename(part(id), leg(id));
  Sync(root_ / "legs");
}

double StudyDir::SecondsOf(const std::string& id) const {
  double seconds = 0;
  std::ifstream(leg(id) / "seconds") >> seconds;
  return seconds;
}

void StudyDir::KeepSeconds(const std::string& id, double seconds) const {
  std::ofstream(part(id) / "seconds") << seconds << '\n';
}

void StudyDir::Write(const std::string& name, std::string_view content) const {
  const fs::path unfinished = root_ / (name + ".new");
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) throw std::runtime_error(unfinished.string() + ": " + std::strerror(errno));
  Sync(unfinished);
  fs::rename(unfinished, root_ / name);
  Sync(root_);
}

}  // namespace ptqwatch::examples
