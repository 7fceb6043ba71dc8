#ifndef PTQWATCH_LR_DECAY_STUDY_STUDY_FLAGS_H_
#define PTQWATCH_LR_DECAY_STUDY_STUDY_FLAGS_H_

#include <string>
#include <vector>

#include "settings.h"

namespace ptqwatch::examples {

struct StudyFlags {
  StudySettings settings;  ///< without the hash of the text
  std::string dir;
  std::string text;  ///< empty: the King James Bible
  std::vector<std::string> groups;
  int jobs = 1;
  std::string leg;  ///< not empty: this process makes one leg
};

/// Throws a UsageError for a mistake; --help ends the process.
StudyFlags ParseStudyFlags(int argc, char** argv);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_STUDY_FLAGS_H_
