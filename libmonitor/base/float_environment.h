#ifndef PTQWATCH_BASE_FLOAT_ENVIRONMENT_H_
#define PTQWATCH_BASE_FLOAT_ENVIRONMENT_H_

#include <cfenv>

namespace ptqwatch::internal {

/// Sets the default floating-point environment for a scope of the calling thread: round to nearest,
/// no traps. Otherwise the first 0 / 0 of a diverged model would end a trainer that uses
/// feenableexcept.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_FLOAT_ENVIRONMENT_H_
