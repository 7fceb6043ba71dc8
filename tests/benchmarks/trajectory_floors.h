#ifndef PTQWATCH_TESTS_BENCHMARKS_TRAJECTORY_FLOORS_H_
#define PTQWATCH_TESTS_BENCHMARKS_TRAJECTORY_FLOORS_H_

#include "models/decoder.h"
#include "streamed/measure_checkpoint.h"

namespace ptqwatch::benchmarks {

/// Prints what a checkpoint costs by part, from the first block and the head: FLOP, bytes, seconds,
/// and the share of the rate at which LibTorch does the part's products alone, or copies as many
/// bytes. `data` and `options` are those of the whole measurement. Parts and their peers take
/// turns, `repeats` times; times are minima and shares medians. Exits after an error.
void PrintFloors(const internal::Decoder& decoder, const internal::TrajectoryData& data,
                 const internal::CheckpointMeasurement& options, int threads, int repeats);

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_TESTS_BENCHMARKS_TRAJECTORY_FLOORS_H_
