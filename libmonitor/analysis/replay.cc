#include "ptqwatch/offline/replay.h"

#include <map>
#include <string>

#include "analysis/analyzer.h"

namespace ptqwatch {

// The branches of a run that forks are series of their own.
struct Replay::State {
  VerdictOptions options;
  std::map<std::string, internal::Analyzer> branches;
};

Replay::Replay(const VerdictOptions& options) : state_(new State{options, {}}) {}
Replay::Replay(Replay&&) noexcept = default;
Replay& Replay::operator=(Replay&&) noexcept = default;
Replay::~Replay() = default;

Verdict Replay::Add(const Report& report) {
  const std::string branch = report.branch.value_or("");
  return state_->branches.try_emplace(branch, state_->options).first->second.Add(report);
}

}  // namespace ptqwatch
