#ifndef PTQWATCH_TESTS_FUZZ_FUZZ_TARGET_H_
#define PTQWATCH_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

/// Every fuzz target defines this function. The same source is linked with libFuzzer
/// (PTQWATCH_FUZZ) or with replay_main.cc, which needs no special compiler.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ptqwatch::fuzz {

/// Inputs that reach far into the code; defined by the target.
std::vector<std::string> Seeds();

/// Ends the process when a promise is broken, also in builds without assert().
inline void Require(bool holds, const char* promise, const std::string& about = "") {
  if (holds) return;
  std::fprintf(stderr, "broken: %s %s\n", promise, about.c_str());
  std::abort();
}

}  // namespace ptqwatch::fuzz

#endif  // PTQWATCH_TESTS_FUZZ_FUZZ_TARGET_H_
