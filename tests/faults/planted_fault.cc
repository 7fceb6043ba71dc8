// Has the fault that the sanitizer of this build is there to find, so that a job that finds nothing
// is known to look.

#include <cstdio>

#include "base/thread.h"

namespace {

int shared = 0;  // of two threads, without a lock

void Race() {
  auto other = ptqwatch::internal::StartThread("races", [] { ++shared; });
  ++shared;
  if (other.ok()) other->Join();
}

void ReadFreedMemory() {
  volatile int* freed = new int(1);
  delete freed;
  shared = *freed;
}

}  // namespace

int main() {
#ifdef __SANITIZE_THREAD__
  Race();
#else
  ReadFreedMemory();
  (void)Race;
#endif
  std::printf("%d: not found\n", shared);
}
