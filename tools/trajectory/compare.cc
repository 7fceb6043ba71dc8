#include "compare.h"

#include <cstdint>
#include <iterator>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "streamed/compare_losses.h"
#include "token_data.h"
#include "trajectory/checkpoint_list.h"

namespace ptqwatch::tools {

using internal::Quoted;
using internal::StrCat;

absl::StatusOr<Comparison::Model> Comparison::FindModel(
    const std::string& path, const std::function<void(std::string_view)>& notice) const {
  PTQWATCH_ASSIGN_OR_RETURN(internal::CheckpointList list, internal::ListCheckpoints({path}));
  for (const std::string& line : list.left_out) notice(line);
  if (list.checkpoints.size() != 1) {
    return absl::InvalidArgumentError(
        StrCat("--compare: ", Quoted(path), " has ", list.checkpoints.size(),
               " checkpoints, which is no one model; name one, such as ",
               Quoted(list.checkpoints.back().path)));
  }
  std::vector<internal::TrajectoryUnit> units =
      internal::PlanUnits(list.checkpoints, internal::LrSchedules(), /*average=*/0);
  return Model{.unit = std::move(units.front()), .compared = {.path = path}};
}

absl::StatusOr<Comparison> Comparison::Prepare(
    const Flags& flags, const std::function<void(std::string_view)>& notice) {
  PTQWATCH_ASSIGN_OR_RETURN(const TokenData tokens, ReadTokenData(flags));
  Comparison comparison(flags, MakeMeter(flags, tokens));
  std::vector<int64_t> vocabularies;
  for (const std::string& path : flags.checkpoints) {
    PTQWATCH_ASSIGN_OR_RETURN(Model model, comparison.FindModel(path, notice));
    PTQWATCH_ASSIGN_OR_RETURN(const internal::ModelFacts facts,
                              comparison.meter_->Facts(model.unit.checkpoint.path));
    const absl::Status fits = CheckTokenData(flags, tokens, facts);
    if (!fits.ok()) return absl::Status(fits.code(), StrCat(Quoted(path), ": ", fits));
    vocabularies.push_back(facts.vocabulary);
    model.compared.architecture = facts.architecture;
    comparison.models_.push_back(std::move(model));
  }
  if (vocabularies.front() != vocabularies.back()) {
    return absl::InvalidArgumentError(
        StrCat("--compare: ", Quoted(flags.checkpoints.front()), " has a vocabulary of ",
               vocabularies.front(), " tokens and ", Quoted(flags.checkpoints.back()), " one of ",
               vocabularies.back(), ": a token is not the same text to both"));
  }
  return comparison;
}

absl::StatusOr<std::string> Comparison::Measure(const internal::TrajectoryListener& listener,
                                                const ExecutionContext& context) {
  for (size_t i = 0; i < models_.size(); ++i) {
    Model& model = models_[i];
    listener.begin(model.unit, static_cast<int64_t>(i) + 1, std::ssize(models_));
    PTQWATCH_ASSIGN_OR_RETURN(
        model.compared.report,
        internal::MeasureUnit(model.unit, /*average=*/0, *meter_, listener.progress, context));
    const Report& report = model.compared.report;
    if (report.probe_status != ProbeStatus::kOk) {
      return absl::DataLossError(
          StrCat(Quoted(model.compared.path), ": ", report.probe_status_detail));
    }
    model.losses = meter_->losses();
    listener.report({.report = report, .verdict = {}});
  }
  ModelComparison comparison{.a = models_[0].compared, .b = models_[1].compared};
  PTQWATCH_ASSIGN_OR_RETURN(comparison.difference,
                            internal::CompareLosses(models_[0].losses, models_[1].losses));
  return flags_.json  ? ComparisonJson(comparison)
         : flags_.csv ? ComparisonCsv(comparison)
                      : ComparisonTable(comparison);
}

}  // namespace ptqwatch::tools
