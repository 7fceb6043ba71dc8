#ifndef PTQWATCH_TESTS_BENCHMARKS_ROUNDING_RATIO_H_
#define PTQWATCH_TESTS_BENCHMARKS_ROUNDING_RATIO_H_

namespace ptqwatch::benchmarks {

/// Prints what round-to-nearest takes in several formats, without statistics and on one thread,
/// over a copy of the same weight, and with each rule for ranges over the same without one.
void PrintRoundingRatios(int repeats);

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_TESTS_BENCHMARKS_ROUNDING_RATIO_H_
