#ifndef PTQWATCH_TESTS_BENCHMARKS_REPEATS_H_
#define PTQWATCH_TESTS_BENCHMARKS_REPEATS_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::benchmarks {

inline std::vector<float> Gaussian(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// Ends the program.
[[noreturn]] inline void Fail(std::string_view what, const absl::Status& status) {
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(what.size()), what.data(),
               status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T OrFail(absl::StatusOr<T> value, std::string_view what) {
  if (!value.ok()) Fail(what, value.status());
  return *std::move(value);
}

/// On one thread its own CPU time, which other work on the machine disturbs less; else wall time.
inline double Now(bool wall) {
  timespec now;
  clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The seconds of some work, one number a repeat.
class Times {
 public:
  void Time(bool wall, const std::function<void()>& work) {
    const double begin = Now(wall);
    work();
    seconds_.push_back(Now(wall) - begin);
  }
  double seconds() const { return *std::min_element(seconds_.begin(), seconds_.end()); }
  double at(size_t repeat) const { return seconds_[repeat]; }
  size_t repeats() const { return seconds_.size(); }

 private:
  std::vector<double> seconds_;
};

struct Spread {
  double median, least, most;
};

/// Statistics of ratio(repeat) over all repeats.
inline Spread SpreadOf(size_t repeats, const std::function<double(size_t)>& ratio) {
  std::vector<double> values;
  for (size_t i = 0; i < repeats; ++i) values.push_back(ratio(i));
  std::sort(values.begin(), values.end());
  return {.median = values[repeats / 2], .least = values.front(), .most = values.back()};
}

/// The ratios of two times that were measured one after the other.
inline Spread Over(const Times& a, const Times& b) {
  return SpreadOf(a.repeats(), [&](size_t i) { return a.at(i) / b.at(i); });
}

inline std::string Ratio(const Spread& spread) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f (%.2f-%.2f)", spread.median, spread.least, spread.most);
  return text;
}

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_TESTS_BENCHMARKS_REPEATS_H_
