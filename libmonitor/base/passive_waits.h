#ifndef PTQWATCH_BASE_PASSIVE_WAITS_H_
#define PTQWATCH_BASE_PASSIVE_WAITS_H_

namespace ptqwatch::internal {

/// Makes OpenMP's threads sleep while they wait for each other, unless OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT is set: threads that spin take minutes for seconds of work if the cores are busy.
/// OpenMP reads the environment as it is loaded, so this starts the program once more. Call it
/// first in main, with the main's own arguments.
void WaitPassively(char** argv);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_PASSIVE_WAITS_H_
