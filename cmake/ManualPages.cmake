# Run by cpack before it packs: makes manual pages of the packed commands and of each subcommand from their --help.
set(bin ${CPACK_PACKAGING_INSTALL_PREFIX}/bin)
set(man ${CPACK_PACKAGING_INSTALL_PREFIX}/share/man/man1)
set(tools_root ${CPACK_TEMPORARY_DIRECTORY}/tools)
set(trajectory_root ${CPACK_TEMPORARY_DIRECTORY}/trajectory)
find_program(HELP2MAN_EXECUTABLE help2man)
find_program(GZIP_EXECUTABLE gzip)
if(NOT HELP2MAN_EXECUTABLE OR NOT GZIP_EXECUTABLE)
  message(FATAL_ERROR "manual pages need help2man and gzip: apt install help2man gzip")
endif()

# write_page(ROOT PAGE COMMAND NAME): NAME is what `man -k` shows.
function(write_page root page command name)
  set(file ${root}${man}/${page}.1)
  file(MAKE_DIRECTORY ${root}${man})
  execute_process(
    COMMAND ${HELP2MAN_EXECUTABLE} --no-info --include=${CMAKE_CURRENT_LIST_DIR}/ptqwatch.h2m
            --opt-include=${CMAKE_CURRENT_LIST_DIR}/${page}.h2m --version-string=${CPACK_PACKAGE_VERSION}
            "--name=${name}" --output=${file} "./${command}"
    WORKING_DIRECTORY ${root}${bin} COMMAND_ERROR_IS_FATAL ANY)
  # man finds pages by this name, which has no space.
  file(READ ${file} text)
  string(REPLACE ".SH NAME\n${command} " ".SH NAME\n${page} " text "${text}")
  file(WRITE ${file} "${text}")
  execute_process(COMMAND ${GZIP_EXECUTABLE} -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

write_page(${tools_root} ptqwatch ptqwatch "${CPACK_PACKAGE_DESCRIPTION_SUMMARY}")
execute_process(COMMAND ./ptqwatch --help WORKING_DIRECTORY ${tools_root}${bin} OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE ".*\nSubcommands:\n(.*)\n\nExamples:.*" "\\1" help "${help}")
string(REGEX MATCHALL "[^\n]+" lines "${help}")
foreach(line ${lines})
  string(REGEX MATCH "^  ([a-z]+) +(.*)" matched "${line}")
  if(NOT CMAKE_MATCH_1 STREQUAL "trajectory")
    write_page(${tools_root} ptqwatch-${CMAKE_MATCH_1} "ptqwatch ${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
  elseif(EXISTS ${trajectory_root})
    # A program of its own, in a package of its own, which finds LibTorch by the run path of the build alone.
    write_page(${trajectory_root} ptqwatch-trajectory ptqwatch-trajectory "${CMAKE_MATCH_2}")
    file(RPATH_REMOVE FILE ${trajectory_root}${bin}/ptqwatch-trajectory)
  endif()
endforeach()
