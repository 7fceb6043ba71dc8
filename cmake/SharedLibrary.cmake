# ptqwatch_shared_library(TARGET NAME LINK library... FROM static_library...): builds libNAME.so from the objects of these static
# libraries and links it with their dependencies. It exports symbols of namespace ptqwatch marked PTQWATCH_EXPORT, and nothing of the
# libraries in it.
function(ptqwatch_shared_library target name)
  cmake_parse_arguments(arg "" "" "FROM;LINK" ${ARGN})
  add_library(${target} SHARED)
  foreach(library IN LISTS arg_FROM)
    get_target_property(objects ${library} PTQWATCH_ROOMS)
    if(objects)
      list(TRANSFORM objects PREPEND ptqwatch_room_)
    else()
      set(objects ${library})
    endif()
    foreach(one IN LISTS objects)
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${one}>)
    endforeach()
    get_target_property(includes ${library} INTERFACE_INCLUDE_DIRECTORIES)
    if(includes)
      target_include_directories(${target} INTERFACE ${includes})
    endif()
  endforeach()
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} LINKER_LANGUAGE CXX LINK_DEPENDS ${exports}
    INSTALL_RPATH "\$ORIGIN"  # they depend on each other
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_link_libraries(${target} ${arg_LINK})
  target_link_options(${target} PRIVATE
    LINKER:--version-script=${exports} LINKER:--exclude-libs,ALL LINKER:-z,defs LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endfunction()
