#ifndef PTQWATCH_BASE_OVERLOADED_H_
#define PTQWATCH_BASE_OVERLOADED_H_

namespace ptqwatch::internal {

// A visitor of a std::variant with one function for each alternative:
//
//   std::visit(Overloaded{[](int number) { ... }, [](const Text& text) { ... }}, value);
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
// C++20 deduces these arguments, but Clang only from version 17 on.
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_OVERLOADED_H_
