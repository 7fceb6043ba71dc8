# ptqwatch_httplib: the HTTP client of tests and benchmarks. Debian's cpp-httplib has no CMake config.
find_path(PTQWATCH_HTTPLIB_INCLUDE_DIR httplib.h REQUIRED)
find_library(PTQWATCH_HTTPLIB_LIBRARY cpp-httplib REQUIRED)
find_package(OpenSSL REQUIRED)
add_library(ptqwatch_httplib INTERFACE)
target_include_directories(ptqwatch_httplib SYSTEM INTERFACE ${PTQWATCH_HTTPLIB_INCLUDE_DIR})
# The definitions decide the layout of httplib's classes and must match its compiled library.
target_compile_definitions(ptqwatch_httplib INTERFACE
  CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT CPPHTTPLIB_BROTLI_SUPPORT)
target_link_libraries(ptqwatch_httplib INTERFACE ${PTQWATCH_HTTPLIB_LIBRARY} OpenSSL::SSL)
