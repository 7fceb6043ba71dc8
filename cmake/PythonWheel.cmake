# Chooses what pip builds (scikit-build-core sets SKBUILD): the Python package for the torch of the environment that it is installed into,
# and the program `ptqwatch` if the libraries of its servers are there.
set(PTQWATCH_WITH_PYTHON ON)
foreach(option PTQWATCH_BUILD_TESTS PTQWATCH_BUILD_EXAMPLES PTQWATCH_BUILD_BENCHMARKS PTQWATCH_SHARED PTQWATCH_INSTALL)
  set(${option} OFF)
endforeach()

# As many compilers at a time as there are cores, but no more than fit into the free memory.
execute_process(COMMAND nproc OUTPUT_VARIABLE _jobs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
cmake_host_system_information(RESULT _free QUERY AVAILABLE_PHYSICAL_MEMORY)
math(EXPR _most "${_free} / 1500")  # MiB of the largest source
if(_jobs GREATER _most)
  set(_jobs ${_most})
endif()
if(_jobs LESS 1)
  set(_jobs 1)
endif()
message(STATUS "ptqwatch: ${_jobs} compilers at a time, ${_free} MiB are free")
set_property(GLOBAL PROPERTY JOB_POOLS compilers=${_jobs})
set(CMAKE_JOB_POOL_COMPILE compilers)

# _ptqwatch_missing(RESULT HEADER=DEBIAN_PACKAGE...): the packages whose header is not there.
function(_ptqwatch_missing result)
  set(missing "")
  foreach(pair IN LISTS ARGN)
    string(REGEX MATCH "^(.*)=(.*)$" _ "${pair}")
    find_path(_folder ${CMAKE_MATCH_1} PATH_SUFFIXES javascript NO_CACHE)
    if(NOT _folder)
      list(APPEND missing ${CMAKE_MATCH_2})
    endif()
    unset(_folder)
  endforeach()
  list(JOIN missing " " missing)
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

_ptqwatch_missing(_missing
  absl/status/statusor.h=libabsl-dev nlohmann/json.hpp=nlohmann-json3-dev hwy/highway.h=libhwy-dev utf8/checked.h=libutfcpp-dev
  xxhash.h=libxxhash-dev)
if(_missing)
  message(FATAL_ERROR "ptqwatch is built with libraries that are not there. Install these Debian packages: ${_missing}")
endif()

_ptqwatch_missing(_missing
  grpcpp/grpcpp.h=libgrpc++-dev google/protobuf/message.h=libprotobuf-dev prometheus/metric_family.h=prometheus-cpp-dev
  boost/beast.hpp=libboost-dev openssl/ssl.h=libssl-dev zlib.h=zlib1g-dev CLI/CLI.hpp=libcli11-dev)
foreach(pair protoc=protobuf-compiler grpc_cpp_plugin=protobuf-compiler-grpc)
  string(REGEX MATCH "^(.*)=(.*)$" _ "${pair}")
  find_program(_program ${CMAKE_MATCH_1} NO_CACHE)
  if(NOT _program)
    string(APPEND _missing " ${CMAKE_MATCH_2}")
  endif()
  unset(_program)
endforeach()
if(NOT EXISTS /usr/share/javascript/chart.js/chart.min.js)
  string(APPEND _missing " libjs-chart.js")
endif()
set(_serve ON)
if(_missing)
  string(STRIP "${_missing}" _missing)
  set(_serve OFF)
  message(STATUS "ptqwatch: WITHOUT the program `ptqwatch`, which serve=True starts. It needs these Debian packages: ${_missing}")
endif()
foreach(option PTQWATCH_WITH_GRPC PTQWATCH_WITH_SERVE PTQWATCH_BUILD_TOOLS)
  set(${option} ${_serve})
endforeach()

# pip hides the environment's packages from the build.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
if(NOT Torch_DIR AND NOT DEFINED ENV{Torch_DIR})
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_torch.py"
    OUTPUT_VARIABLE Torch_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT Torch_DIR)
    message(FATAL_ERROR "There is no torch in the environment of ${Python3_EXECUTABLE}. Run pip install '${PTQWATCH_PYTHON_TORCH}' first, "
                        "or set Torch_DIR in the environment to the folder of TorchConfig.cmake.")
  endif()
endif()
