# cmake -D OUTPUT=FILE.cc "-D FILES=NAME=PATH[,PATH...];..." -P EmbedFiles.cmake: writes a source file that defines EmbeddedFiles()
# of embedded_files.h. A name with several paths has their concatenated contents.
cmake_minimum_required(VERSION 3.25)

set(arrays "")
set(entries "")
set(number 0)
foreach(file IN LISTS FILES)
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${file}")
  set(name "${CMAKE_MATCH_1}")
  string(REPLACE "," ";" paths "${CMAKE_MATCH_2}")
  set(bytes "")
  foreach(path IN LISTS paths)
    file(READ "${path}" hex HEX)
    string(APPEND bytes "${hex}")
  endforeach()
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${bytes}};\n")
  string(APPEND entries "    {\"${name}\", {reinterpret_cast<const char*>(kFile${number}), sizeof(kFile${number})}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}.new" "#include \"page/embedded_files.h\"

namespace ptqwatch::internal {
namespace {

${arrays}
}  // namespace

const std::map<std::string_view, std::string_view>& EmbeddedFiles() {
  static const auto* const files = new std::map<std::string_view, std::string_view>{
${entries}  };
  return *files;
}

}  // namespace ptqwatch::internal
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
