#ifndef PTQWATCH_LR_DECAY_STUDY_STUDY_DIR_H_
#define PTQWATCH_LR_DECAY_STUDY_STUDY_DIR_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "settings.h"

namespace ptqwatch::examples {

/// The directory of a study:
///   study.json         its settings
///   text               what is trained on
///   legs/ID/           a finished leg: run/ (journal), state.safetensors, weights-STEP.safetensors
///   legs/ID.part/      one that is being made
///   logs/ID.log        what a leg's process printed
///   results.json, results.md
/// Only what has been renamed into place is ever read, so it may be left at any moment.
class StudyDir {
 public:
  explicit StudyDir(std::filesystem::path root) : root_(std::move(root)) {}
  ~StudyDir();
  StudyDir(const StudyDir&) = delete;
  StudyDir& operator=(const StudyDir&) = delete;

  /// Creates it, or goes on with one of the same settings, and removes unfinished legs. While this
  /// object or a child of this process lives, another that calls this is refused. Throws a
  /// UsageError that names --dir: where it cannot be written, was made with other settings, belongs
  /// to a study that runs, or is a folder of something else.
  void Take(const StudySettings& settings, std::string_view text);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path text() const { return root_ / "text"; }
  std::filesystem::path log(const std::string& leg) const {
    return root_ / "logs" / (leg + ".log");
  }
  std::filesystem::path leg(const std::string& id) const { return root_ / "legs" / id; }
  std::filesystem::path part(const std::string& id) const {
    return root_ / "legs" / (id + ".part");
  }
  std::filesystem::path journal(const std::string& id) const { return leg(id) / "run"; }
  std::filesystem::path state(const std::string& id) const { return leg(id) / "state.safetensors"; }
  std::filesystem::path weights(const std::string& id, int64_t step) const {
    return leg(id) / WeightsName(step);
  }
  static std::string WeightsName(int64_t step);

  bool IsFinished(const std::string& id) const { return std::filesystem::exists(leg(id)); }
  /// Renames a part to what it was made for, once its content is on disk.
  void Finish(const std::string& id) const;
  /// How long a finished leg took; 0 where that is not known.
  double SecondsOf(const std::string& id) const;
  void KeepSeconds(const std::string& id, double seconds) const;

  /// Writes a file whole or not at all. Throws std::runtime_error naming it.
  void Write(const std::string& name, std::string_view content) const;

 private:
  void Lock();

  std::filesystem::path root_;
  int lock_ = -1;
};

/// The content of a file. Throws std::runtime_error naming it.
std::string ReadFile(const std::filesystem::path& path);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_STUDY_DIR_H_
