#ifndef PTQWATCH_PYTHON_COUNT_MEMBERS_H_
#define PTQWATCH_PYTHON_COUNT_MEMBERS_H_

// Compares the members of a struct with a list of them, when the list is compiled.

namespace ptqwatch::python {

/// Converts to the type of any member. Only for expressions that are not evaluated.
struct AnyMember {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

/// The number of members of an aggregate.
template <typename Record, typename... Members>
consteval int CountMembers() {
  if constexpr (requires { Record{Members()..., AnyMember()}; }) {
    return CountMembers<Record, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

/// Declared only: its members have names, but no values.
template <typename Record>
extern Record never_made;

/// The number of members that `visit_all(record, visit)` visits.
template <typename Record>
consteval int CountListed(auto visit_all) {
  int listed = 0;
  visit_all(never_made<Record>, [&listed](const char*, auto&, auto...) { ++listed; });
  return listed;
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_COUNT_MEMBERS_H_
