#ifndef PTQWATCH_CONFIG_H_
#define PTQWATCH_CONFIG_H_

#if __cplusplus < 202002L
#error "ptqwatch needs C++20: compile with -std=c++20 or later"
#endif

// The ABI macro is defined by the first standard header.
#include <version>
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0
#error "ptqwatch needs the C++11 ABI of libstdc++: compile without -D_GLIBCXX_USE_CXX11_ABI=0"
#endif

#define PTQWATCH_VERSION_MAJOR 0
#define PTQWATCH_VERSION_MINOR 1
#define PTQWATCH_VERSION_PATCH 0
#define PTQWATCH_VERSION_STRING "0.1.0"

/// Exports a symbol from a shared library; all other symbols are hidden. Part of the API.
#define PTQWATCH_EXPORT __attribute__((visibility("default")))

#endif  // PTQWATCH_CONFIG_H_
