#ifndef PTQWATCH_LR_DECAY_STUDY_RESULTS_H_
#define PTQWATCH_LR_DECAY_STUDY_RESULTS_H_

#include <string>
#include <vector>

#include "judging.h"
#include "nlohmann/json.hpp"
#include "study_data.h"

namespace ptqwatch::examples {

/// All of it. Everything but "seconds" is the same whenever the study is repeated on a machine.
///   {"schema": 1, "ptqwatch": VERSION, "settings": {...}, "claims": [...], "runs": {NAME: [...]},
///    "seconds": {LEG: ...}}
/// A number that was not measured is null.
nlohmann::ordered_json ResultsJson(const StudyData& data, const std::vector<Claim>& claims);

/// The verdicts as lines for a terminal.
std::string ResultsTable(const StudyData& data, const std::vector<Claim>& claims);

/// A page of Markdown: the table of claims with the spread over seeds, then the criteria.
std::string ResultsPage(const StudyData& data, const std::vector<Claim>& claims);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_RESULTS_H_
