#include "trajectory/checkpoint_manifest.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "trajectory/checkpoint_folder.h"

namespace ptqwatch::internal {
namespace {

enum Column { kPath, kStep, kTokens, kLearningRate, kBranch };
constexpr std::array<std::string_view, 5> kColumns = {"path", "step", "tokens", "learning_rate",
                                                      "branch"};
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Row {
  int64_t line = 0;  // of the file, from 1
  std::vector<std::string> fields;
};

absl::Status ManifestError(const std::string& path, int64_t line, std::string_view problem) {
  return absl::InvalidArgumentError(StrCat(Quoted(path), ", line ", line, ": ", problem));
}

// Splits CSV into rows; empty lines are left out.
class CsvReader {
 public:
  CsvReader(std::string_view csv, const std::string& path) : rest_(csv), path_(path) {}

  // nullopt at the end.
  absl::StatusOr<std::optional<Row>> Next() {
    while (!rest_.empty()) {
      Row row{.line = line_, .fields = {}};
      bool more = true;
      while (more) {
        PTQWATCH_ASSIGN_OR_RETURN(std::string field, Field());
        more = !rest_.empty() && rest_.front() == ',';
        row.fields.push_back(std::move(field));
        if (more) rest_.remove_prefix(1);
      }
      if (rest_.starts_with('\r')) rest_.remove_prefix(1);
      if (rest_.starts_with('\n')) rest_.remove_prefix(1);
      ++line_;
      if (row.fields.size() > 1 || !row.fields.front().empty()) return row;
    }
    return std::nullopt;
  }

 private:
  absl::StatusOr<std::string> Field() {
    if (!rest_.starts_with('"')) {
      std::string_view field = rest_.substr(0, rest_.find_first_of(",\n"));
      rest_.remove_prefix(field.size());
      if (!rest_.starts_with(',') && field.ends_with('\r')) field.remove_suffix(1);
      return std::string(field);
    }
    std::string field;
    const int64_t first = line_;
    for (rest_.remove_prefix(1); !rest_.empty(); rest_.remove_prefix(1)) {
      if (rest_.starts_with("\"\"")) {
        rest_.remove_prefix(1);
      } else if (rest_.front() == '"') {
        rest_.remove_prefix(1);
        if (rest_.empty() || std::string_view(",\r\n").find(rest_.front()) != std::string::npos) {
          return field;
        }
        return ManifestError(path_, line_, "text follows a closing quote");
      }
      if (rest_.front() == '\n') ++line_;
      field += rest_.front();
    }
    return ManifestError(path_, first, "a quote is not closed");
  }

  std::string_view rest_;
  const std::string& path_;
  int64_t line_ = 1;
};

// The position of each column in a row; nullopt: the manifest does not have it.
using Places = std::array<std::optional<size_t>, kColumns.size()>;

absl::StatusOr<Places> ReadHeader(const Row& header, const std::string& path) {
  Places places;
  for (size_t i = 0; i < header.fields.size(); ++i) {
    const std::string& name = header.fields[i];
    size_t column = 0;
    while (column < kColumns.size() && kColumns[column] != name) ++column;
    if (column == kColumns.size()) {
      return ManifestError(path, header.line,
                           StrCat("unknown column ", Quoted(name), "; did you mean ",
                                  NearestName(name, kColumns), "? The first line names columns"));
    }
    if (places[column]) {
      return ManifestError(path, header.line, StrCat("column ", name, " occurs twice"));
    }
    places[column] = i;
  }
  if (!places[kPath]) return ManifestError(path, header.line, "there is no column path");
  return places;
}

class RowReader {
 public:
  RowReader(const Places& places, const std::string& path) : places_(places), path_(path) {}

  absl::StatusOr<Checkpoint> Read(const Row& row) const {
    const std::string_view folder = Field(row, kPath);
    if (folder.empty()) return ManifestError(path_, row.line, "path is empty");
    const std::filesystem::path base = std::filesystem::path(path_).parent_path();
    const std::string whole = (base / folder).string();
    PTQWATCH_ASSIGN_OR_RETURN(const std::optional<int64_t> step, Count(row, kStep));
    absl::StatusOr<Checkpoint> checkpoint =
        step ? DescribeCheckpointAt(whole, *step) : DescribeCheckpoint(whole);
    if (!checkpoint.ok()) {
      return absl::Status(checkpoint.status().code(),
                          StrCat(Quoted(path_), ", line ", row.line, ": ", checkpoint.status()));
    }
    if (checkpoint->step == kUnknownStep) {
      return ManifestError(path_, row.line,
                           StrCat(Quoted(whole),
                                  " has no step: its name is not of the form step512 "
                                  "or checkpoint-500; a column step can give it"));
    }
    PTQWATCH_ASSIGN_OR_RETURN(const std::optional<int64_t> tokens, Count(row, kTokens));
    if (tokens) checkpoint->tokens = tokens;
    PTQWATCH_ASSIGN_OR_RETURN(checkpoint->learning_rate, Rate(row));
    if (places_[kBranch]) checkpoint->branch = Field(row, kBranch);
    if (!IsUtf8(checkpoint->branch)) return Mistake(row, kBranch, "not UTF-8");
    return checkpoint;
  }

 private:
  std::string_view Field(const Row& row, Column column) const {
    return places_[column] ? std::string_view(row.fields[*places_[column]]) : "";
  }

  absl::Status Mistake(const Row& row, Column column, std::string_view problem) const {
    return ManifestError(
        path_, row.line,
        StrCat(kColumns[column], " is ", Quoted(Field(row, column)), ", ", problem));
  }

  absl::StatusOr<std::optional<int64_t>> Count(const Row& row, Column column) const {
    const std::string_view text = Field(row, column);
    int64_t count = 0;
    if (text.empty()) return std::nullopt;
    if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &count) || count < 0) {
      return Mistake(row, column, "not a whole number of at least 0");
    }
    return count;
  }

  absl::StatusOr<std::optional<double>> Rate(const Row& row) const {
    const std::string_view text = Field(row, kLearningRate);
    double rate = 0;
    if (text.empty()) return std::nullopt;
    if (!absl::SimpleAtod(absl::string_view(text.data(), text.size()), &rate) ||
        !std::isfinite(rate) || rate < 0) {
      return Mistake(row, kLearningRate, "not a number of at least 0");
    }
    return rate;
  }

  const Places& places_;
  const std::string& path_;
};

}  // namespace

absl::StatusOr<std::vector<Checkpoint>> ParseManifest(std::string_view csv,
                                                      const std::string& path) {
  if (csv.starts_with(kByteOrderMark)) csv.remove_prefix(kByteOrderMark.size());
  CsvReader reader(csv, path);
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<Row> header, reader.Next());
  if (!header) return ManifestError(path, 1, "the manifest is empty; it begins with path,step,...");
  PTQWATCH_ASSIGN_OR_RETURN(const Places places, ReadHeader(*header, path));
  const RowReader rows(places, path);
  std::vector<Checkpoint> checkpoints;
  while (true) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::optional<Row> row, reader.Next());
    if (!row) break;
    if (row->fields.size() != header->fields.size()) {
      return ManifestError(
          path, row->line,
          StrFormat("%d fields in place of %d", row->fields.size(), header->fields.size()));
    }
    PTQWATCH_ASSIGN_OR_RETURN(Checkpoint checkpoint, rows.Read(*row));
    checkpoints.push_back(std::move(checkpoint));
  }
  if (checkpoints.empty()) {
    return ManifestError(path, header->line, "the manifest lists no checkpoints");
  }
  return checkpoints;
}

}  // namespace ptqwatch::internal
