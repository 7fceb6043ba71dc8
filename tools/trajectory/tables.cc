#include "tables.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>

#include "base/strings.h"
#include "base/utf8.h"
#include "printable.h"
#include "report_table.h"
#include "text_table.h"
#include "trajectory/checkpoint.h"

namespace ptqwatch::tools {
namespace {

using internal::StrCat;
using Rows = std::vector<std::vector<std::string>>;

constexpr int kLossDigits = 5;

std::string BranchCell(const std::string& branch) {
  return branch.empty() ? "-" : internal::Printable(branch);
}

std::string StepCell(int64_t step) { return step == internal::kUnknownStep ? "-" : StrCat(step); }

std::string LossCell(const Report& report) {
  if (report.probe_status != ProbeStatus::kOk || !report.probe_loss_nats) {
    return std::string(internal::MissingCell(report.probe_status));
  }
  return internal::NumberText(*report.probe_loss_nats, kLossDigits);
}

// Whether any report belongs to a branch.
bool Branches(const std::vector<AnalyzedReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const AnalyzedReport& analyzed) {
    return analyzed.report.branch.has_value();
  });
}

}  // namespace

std::string ResultTable(std::vector<AnalyzedReport> reports) {
  std::map<std::string, const AnalyzedReport*> newest;
  std::vector<std::string> quantizers;  // of all reports
  std::stable_sort(
      reports.begin(), reports.end(), [](const AnalyzedReport& a, const AnalyzedReport& b) {
        return std::tie(a.report.branch, a.report.step) < std::tie(b.report.branch, b.report.step);
      });
  for (const AnalyzedReport& analyzed : reports) {
    const std::vector<QuantizationReport>& entries = analyzed.report.quantization;
    const std::vector<std::string> names = internal::QuantizerNames(entries);
    for (const size_t i : internal::QuantizerOrder(entries)) {
      if (std::find(quantizers.begin(), quantizers.end(), names[i]) == quantizers.end()) {
        quantizers.push_back(names[i]);
      }
    }
    newest[analyzed.report.branch.value_or("")] = &analyzed;
  }
  const bool branches = Branches(reports);
  Rows rows;
  std::vector<std::string> header{"step", "tokens", "lr", "loss"};
  if (branches) header.insert(header.begin(), "branch");
  header.insert(header.end(), quantizers.begin(), quantizers.end());
  header.push_back("verdict");
  rows.push_back(std::move(header));
  for (const AnalyzedReport& analyzed : reports) {
    const Report& report = analyzed.report;
    std::vector<std::string> row;
    if (branches) row.push_back(BranchCell(report.branch.value_or("")));
    row.push_back(StepCell(report.step));
    row.push_back(report.tokens ? StrCat(*report.tokens) : "-");
    row.push_back(internal::RateText(report.learning_rate));
    row.push_back(LossCell(report));
    const std::vector<std::string> names = internal::QuantizerNames(report.quantization);
    for (const std::string& name : quantizers) {
      const auto found = std::find(names.begin(), names.end(), name);
      row.push_back(found == names.end()
                        ? "-"
                        : internal::ErrorRatioCell(
                              report.quantization[static_cast<size_t>(found - names.begin())],
                              /*utf8=*/true));
    }
    row.push_back(internal::VerdictCell(analyzed.verdict.state, /*color=*/false));
    rows.push_back(std::move(row));
  }
  std::string text = internal::TextTable(rows);
  for (const auto& [branch, analyzed] : newest) {
    text += StrCat(branch.empty() ? "" : StrCat(internal::Printable(branch), ": "),
                   analyzed->verdict.summary, "\n");
  }
  return text;
}

std::string UnitTable(const std::vector<ListedUnit>& units, double seconds, int64_t bytes) {
  Rows rows{{"index", "branch", "step", "path", "seconds", "bytes", "state"}};
  for (size_t i = 0; i < units.size(); ++i) {
    const internal::Checkpoint& checkpoint = units[i].unit.checkpoint;
    // The mean of a window is measured like a checkpoint.
    const double times = units[i].unit.window.size() > 1 ? 2 : 1;
    rows.push_back(
        {StrCat(i), BranchCell(checkpoint.branch), StepCell(checkpoint.step),
         internal::Printable(checkpoint.soup.empty() ? checkpoint.path : checkpoint.name),
         seconds > 0 ? internal::NumberText(seconds * times, 3) : "-", StrCat(bytes),
         units[i].state});
  }
  return internal::TextTable(rows);
}

}  // namespace ptqwatch::tools
