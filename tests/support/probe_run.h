#ifndef PTQWATCH_TESTS_SUPPORT_PROBE_RUN_H_
#define PTQWATCH_TESTS_SUPPORT_PROBE_RUN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "probes/assemble_report.h"
#include "probes/probe_suite.h"

namespace ptqwatch::testing {

/// The probes of a monitor with these options, on a subject that outlives them.
inline absl::StatusOr<std::unique_ptr<internal::ProbeSuite>> OpenProbes(
    Subject& subject, const MonitorOptions& options, const CurvatureEngineOptions& engine = {}) {
  auto session = internal::ModelSession::Open(subject, internal::SessionOptions(options, engine));
  if (!session.ok()) return session.status();
  return internal::ProbeSuite::Create(*std::move(session), options, engine);
}

/// Measures the loaded snapshot and assembles the report below `header`. The probes start from
/// `state`, if given, and update it.
inline Report MeasureReport(internal::ProbeSuite& suite, internal::ProbeState* state = nullptr,
                            internal::ReportHeader header = {}) {
  const internal::SnapshotPlace place{.run_id = header.run_id,
                                      .fingerprint = header.fingerprint,
                                      .sequence = header.sequence,
                                      .step = header.snapshot.info.step,
                                      .regular = internal::IsRegular(header.snapshot),
                                      .plan = header.plan};
  auto measured = suite.Measure(place, state != nullptr ? *state : internal::ProbeState());
  EXPECT_TRUE(measured.ok()) << measured.status();
  if (!measured.ok()) return {};
  header.probe_state_sequence = measured->probe_state_sequence;
  const Report report = internal::AssembleReport(header, measured->results);
  if (state != nullptr && measured->next) *state = *std::move(measured->next);
  return report;
}

/// The probes' descriptions of their measurements.
inline std::string DescribeProbes(const internal::ProbeSuite& suite) {
  std::string text;
  for (const auto& probe : suite.probes()) text += probe->Needs(INT64_MAX).text;
  return text;
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_PROBE_RUN_H_
