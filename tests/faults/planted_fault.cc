// Contains the fault that this build's sanitizer detects, to prove that a job without findings does
// look.

#include <cstdio>

#include "base/thread.h"

namespace {

int shared = 0;  // written by two threads, without a lock

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
