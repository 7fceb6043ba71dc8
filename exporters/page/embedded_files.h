#ifndef PTQWATCH_PAGE_EMBEDDED_FILES_H_
#define PTQWATCH_PAGE_EMBEDDED_FILES_H_

#include <map>
#include <string_view>

namespace ptqwatch::internal {

/// The files of the live page by name: page/ and Debian's Chart.js, embedded by the build
/// (cmake/EmbedFiles.cmake).
const std::map<std::string_view, std::string_view>& EmbeddedFiles();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PAGE_EMBEDDED_FILES_H_
