# Run by cpack before it packs: makes manual pages of the packed command and of each of its subcommands from their --help.
set(root ${CPACK_TEMPORARY_DIRECTORY}/tools${CPACK_PACKAGING_INSTALL_PREFIX})
set(pages ${root}/share/man/man1)
find_program(HELP2MAN_EXECUTABLE help2man)
find_program(GZIP_EXECUTABLE gzip)
if(NOT HELP2MAN_EXECUTABLE OR NOT GZIP_EXECUTABLE)
  message(FATAL_ERROR "manual pages need help2man and gzip: apt install help2man gzip")
endif()
file(MAKE_DIRECTORY ${pages})

# write_page(PAGE COMMAND NAME): NAME is what `man -k` shows.
function(write_page page command name)
  execute_process(
    COMMAND ${HELP2MAN_EXECUTABLE} --no-info --include=${CMAKE_CURRENT_LIST_DIR}/ptqwatch.h2m --version-string=${CPACK_PACKAGE_VERSION}
            "--name=${name}" --output=${pages}/${page}.1 "./${command}"
    WORKING_DIRECTORY ${root}/bin COMMAND_ERROR_IS_FATAL ANY)
  # man finds pages by this name, which has no space.
  file(READ ${pages}/${page}.1 text)
  string(REPLACE ".SH NAME\n${command} " ".SH NAME\n${page} " text "${text}")
  file(WRITE ${pages}/${page}.1 "${text}")
  execute_process(COMMAND ${GZIP_EXECUTABLE} -9nf ${pages}/${page}.1 COMMAND_ERROR_IS_FATAL ANY)
endfunction()

write_page(ptqwatch ptqwatch "${CPACK_PACKAGE_DESCRIPTION_SUMMARY}")
execute_process(COMMAND ./ptqwatch --help WORKING_DIRECTORY ${root}/bin OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE ".*\nSubcommands:\n(.*)\n\nExamples:.*" "\\1" help "${help}")
string(REGEX MATCHALL "[^\n]+" lines "${help}")
foreach(line ${lines})
  string(REGEX MATCH "^  ([a-z]+) +(.*)" matched "${line}")
  if(CMAKE_MATCH_1 STREQUAL "trajectory")  # a program of its own, in no package
    continue()
  endif()
  write_page(ptqwatch-${CMAKE_MATCH_1} "ptqwatch ${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
endforeach()
