# Finds a LibTorch (a PyPI wheel or the zip) and defines one imported target:
#
#   LibTorch::LibTorch   headers, libtorch_cpu, libc10 and its libgomp; with CUDA also libc10_cuda and the CUDA runtime
#
# Input:  Torch_DIR (CMake variable or environment; the folder that holds TorchConfig.cmake). Without it, a LibTorch on CMAKE_PREFIX_PATH,
#         and then the copy that ./setup keeps in ${XDG_CACHE_HOME:-~/.cache}/ptqwatch. Never sets Torch_DIR itself, because
#         that would redirect a find_package(Torch) of the enclosing project.
# Output: LibTorch_FOUND, LibTorch_VERSION, LibTorch_HAS_CUDA, LibTorch_CUDA_MAJOR (the CUDA that it was built for), LibTorch_ROOT.
#
# Replaces find_package(Torch), which on a CUDA wheel needs a toolkit, TORCH_CUDA_ARCH_LIST and a CUDA language even for a program that
# only runs on the CPU, and which puts the wheel's old protobuf on the search path.

set(_ptqwatch_default_torch 2.15.0)
set(_ptqwatch_torch_dir "${Torch_DIR}")
if(NOT _ptqwatch_torch_dir AND DEFINED ENV{Torch_DIR})
  set(_ptqwatch_torch_dir "$ENV{Torch_DIR}")
endif()
if(NOT _ptqwatch_torch_dir AND CMAKE_PREFIX_PATH)
  find_path(_ptqwatch_torch_on_prefix TorchConfig.cmake
            PATHS ${CMAKE_PREFIX_PATH} PATH_SUFFIXES share/cmake/Torch torch/share/cmake/Torch NO_DEFAULT_PATH NO_CACHE)
  if(_ptqwatch_torch_on_prefix)
    set(_ptqwatch_torch_dir "${_ptqwatch_torch_on_prefix}")
  endif()
endif()
if(NOT _ptqwatch_torch_dir)
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(_ptqwatch_cache "$ENV{XDG_CACHE_HOME}/ptqwatch")
  else()
    set(_ptqwatch_cache "$ENV{HOME}/.cache/ptqwatch")
  endif()
  foreach(_variant cuda cpu)
    set(_candidate "${_ptqwatch_cache}/libtorch-${_ptqwatch_default_torch}-${_variant}/torch/share/cmake/Torch")
    if(EXISTS "${_candidate}/TorchConfig.cmake")
      set(_ptqwatch_torch_dir "${_candidate}")
      break()
    endif()
  endforeach()
endif()

if(NOT _ptqwatch_torch_dir AND _ptqwatch_torch_root)  # in an installed ptqwatch: the LibTorch of its build
  set(_ptqwatch_torch_dir "${_ptqwatch_torch_root}/share/cmake/Torch")
endif()

if(_ptqwatch_torch_dir)
  get_filename_component(LibTorch_ROOT "${_ptqwatch_torch_dir}/../../.." ABSOLUTE)
  # NO_CACHE, so that another Torch_DIR takes effect in the same build folder.
  find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
  find_library(LibTorch_C10_LIBRARY c10 PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS "${LibTorch_ROOT}/lib" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
  find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h PATHS "${LibTorch_ROOT}/include" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
endif()

set(LibTorch_HAS_CUDA OFF)
set(LibTorch_CUDA_MAJOR "")
if(LibTorch_C10_CUDA_LIBRARY)
  set(LibTorch_HAS_CUDA ON)
  file(STRINGS "${LibTorch_C10_CUDA_LIBRARY}" _names REGEX "libcudart[^ ]*\\.so\\.[0-9]+")
  if("${_names}" MATCHES "libcudart[^ ;]*\\.so\\.([0-9]+)")
    set(LibTorch_CUDA_MAJOR ${CMAKE_MATCH_1})
  endif()
endif()

foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # moved in 2.9
  if(LibTorch_INCLUDE_DIR AND NOT LibTorch_VERSION AND EXISTS "${LibTorch_INCLUDE_DIR}/${_header}")
    file(STRINGS "${LibTorch_INCLUDE_DIR}/${_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    if("${_lines}" MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
      set(LibTorch_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run ./setup, or give -DTorch_DIR=<folder of TorchConfig.cmake>.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  # ATen must use the OpenMP library it was built with: omp_set_num_threads of another copy would not reach it.
  file(GLOB _gomp "${LibTorch_ROOT}/lib/libgomp*.so.1*")
  if(NOT _gomp)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    set(_gomp OpenMP::OpenMP_CXX)
  endif()
  target_link_libraries(LibTorch::LibTorch INTERFACE
    "-Wl,--no-as-needed" "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}" ${_gomp} "-Wl,--as-needed")
endif()
