# `cpack` in a build folder makes Debian packages of the components of cmake/Install.cmake:
#   libptqwatch0.1   the shared libraries
#   libptqwatch-dev  headers, archives, CMake and pkg-config files
#   ptqwatch         the commands, dashboards and alerts
#   ptqwatch-trajectory  the program that measures checkpoints
# LibTorch is in no Debian package: a program brings its own, of the version that these were built with.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ptqwatch)
set(CPACK_PACKAGE_VENDOR ptqwatch)
set(CPACK_PACKAGE_CONTACT "ptqwatch developers <ptqwatch@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "watches whether a model in training survives quantization")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development tools)
if(TARGET trajectory)
  list(APPEND CPACK_COMPONENTS_ALL trajectory)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
if(LibTorch_ROOT)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${LibTorch_ROOT}/lib")
  if(PTQWATCH_HAVE_CUDA)
    foreach(file IN LISTS PTQWATCH_CUDA_FILES)
      cmake_path(GET file PARENT_PATH folder)
      list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${folder}")
    endforeach()
  endif()
endif()

set(library libptqwatch${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/debian/triggers)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Shared libraries.
A monitor that a C++ trainer links: it quantizes a copy of the weights while
training goes on, and says what post-training quantization would cost in loss.
It needs LibTorch ${LibTorch_VERSION}, which is in no Debian package.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libptqwatch-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION}-1), libabsl-dev, libhwy-dev, nlohmann-json3-dev")
if(TARGET ptqwatch_serve)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", prometheus-cpp-dev, libssl-dev, zlib1g-dev")
endif()
if(TARGET ptqwatch_client)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libgrpc++-dev, libprotobuf-dev, protobuf-compiler-grpc")
endif()
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers and archives.
What a C++ trainer is compiled and linked with to have its weights watched:
find_package(ptqwatch) and pkg-config ptqwatch.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ptqwatch)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "ptqwatch-trajectory, prometheus, prometheus-alertmanager, python3")
if(TARGET ptqwatch AND NOT CMAKE_CROSSCOMPILING)  # help2man runs the command
  set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/ManualPages.cmake)
endif()
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Commands, dashboards and alerts.
Follows runs of trainers with ptqwatch in them, serves what they measure over
gRPC, to Prometheus and as a page, and quantizes checkpoints.")

set(CPACK_DEBIAN_TRAJECTORY_PACKAGE_NAME ptqwatch-trajectory)
set(CPACK_DEBIAN_TRAJECTORY_PACKAGE_RECOMMENDS ptqwatch)
set(CPACK_COMPONENT_TRAJECTORY_DESCRIPTION "Measures published checkpoints.
The program behind `ptqwatch trajectory`: the loss of a run's checkpoints under
post-training quantization, and how sharp the loss surface is there.
It needs LibTorch ${LibTorch_VERSION}, which is in no Debian package: LD_LIBRARY_PATH must
name its folder of libraries, such as torch/lib of PyPI's torch.")

set(pairs runtime:${library} development:libptqwatch-dev tools:ptqwatch)
if(TARGET trajectory)
  list(APPEND pairs trajectory:ptqwatch-trajectory)
endif()
foreach(pair IN LISTS pairs)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES ${PROJECT_BINARY_DIR}/debian/copyright ${PROJECT_BINARY_DIR}/debian/changelog.Debian.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/debian_copyright.in ${PROJECT_BINARY_DIR}/debian/copyright COPYONLY)
file(WRITE ${PROJECT_BINARY_DIR}/debian/changelog.Debian
  "ptqwatch (${PROJECT_VERSION}-1) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n"
  " -- ptqwatch developers <ptqwatch@users.noreply.github.com>  Thu, 01 Jan 2026 00:00:00 +0000\n")
find_program(GZIP_EXECUTABLE gzip REQUIRED)
execute_process(COMMAND ${GZIP_EXECUTABLE} -9nkf ${PROJECT_BINARY_DIR}/debian/changelog.Debian)
include(CPack)
