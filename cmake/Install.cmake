# What `cmake --install` puts where. CMake's components are those of packages: `runtime` (shared libraries), `development` (headers,
# archives, CMake and pkg-config files) and `tools` (commands, dashboards). Those of find_package are monitor, client and serve; each has
# a file of targets for static and for shared libraries, so that what is not asked for is not looked for.
include(CMakePackageConfigHelpers)

set(PTQWATCH_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/ptqwatch")

# _ptqwatch_install(COMPONENT LINKAGE target...): these targets, in the file of this component and linkage.
function(_ptqwatch_install component linkage)
  set(set ptqwatch-${component}-${linkage})
  install(TARGETS ${ARGN} EXPORT ${set}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT ${set} NAMESPACE ptqwatch:: DESTINATION ${PTQWATCH_CMAKE_DIR} COMPONENT development)
endfunction()

function(_ptqwatch_install_headers folder)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
endfunction()

# _ptqwatch_pkg_config(NAME DESCRIPTION REQUIRES LIBS CFLAGS)
function(_ptqwatch_pkg_config name description requires libs cflags)
  # Relative to the file, so that `cmake --install --prefix` may move it all.
  file(RELATIVE_PATH PC_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
  string(PREPEND PC_PREFIX "\${pcfiledir}/")
  file(RELATIVE_PATH PC_LIBDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  file(RELATIVE_PATH PC_INCLUDEDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
  set(PC_NAME ${name})
  set(PC_DESCRIPTION "${description}")
  set(PC_REQUIRES "${requires}")
  set(PC_LIBS "${libs}")
  set(PC_CFLAGS "${cflags}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/ptqwatch.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()

set_target_properties(ptqwatch_core PROPERTIES EXPORT_NAME core)
set_target_properties(ptqwatch_quantize PROPERTIES EXPORT_NAME quantize)
set_target_properties(ptqwatch_checkpoint PROPERTIES EXPORT_NAME checkpoint)
set(static ptqwatch_core ptqwatch_quantize ptqwatch_checkpoint)
set(monitor_libs "-lptqwatch_checkpoint -lptqwatch_quantize -lptqwatch_core -lhwy -pthread")
set(absl_modules "absl_status absl_statusor absl_strings absl_str_format absl_span")
set(torch_libs "")
set(torch_cflags "")
if(TARGET ptqwatch_monitor)
  set_target_properties(ptqwatch_monitor PROPERTIES EXPORT_NAME monitor)
  set_target_properties(ptqwatch_cuda_engine PROPERTIES EXPORT_NAME cuda_engine)
  list(APPEND static ptqwatch_monitor ptqwatch_cuda_engine)
  string(PREPEND monitor_libs "-lptqwatch_monitor -lptqwatch_cuda_engine ")
  get_target_property(torch_link LibTorch::LibTorch INTERFACE_LINK_LIBRARIES)
  list(JOIN torch_link " " torch_libs)
  string(REPLACE "OpenMP::OpenMP_CXX" "-fopenmp" torch_libs "${torch_libs}")
  string(PREPEND torch_libs " -Wl,-rpath,${LibTorch_ROOT}/lib ")
  if(PTQWATCH_HAVE_CUDA)
    set_target_properties(ptqwatch_cuda_device PROPERTIES EXPORT_NAME cuda_device)
    list(APPEND static ptqwatch_cuda_device)
    string(REPLACE "-lptqwatch_cuda_engine" "-lptqwatch_cuda_device -lptqwatch_cuda_engine" monitor_libs "${monitor_libs}")
    string(APPEND torch_libs " -Wl,--no-as-needed ${LibTorch_C10_CUDA_LIBRARY} ${CUDA_cudart_LIBRARY}"
                             " ${CUDA_cublas_LIBRARY} ${CUDA_cusolver_LIBRARY} -Wl,--as-needed"
                             " -Wl,-rpath,${CUDAToolkit_LIBRARY_DIR}")
  endif()
  get_target_property(torch_includes LibTorch::LibTorch INTERFACE_INCLUDE_DIRECTORIES)
  list(JOIN torch_includes " -isystem " torch_cflags)
  string(PREPEND torch_cflags " -isystem ")
endif()
_ptqwatch_install(monitor static ${static})
_ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/libmonitor/include)
if(TARGET ptqwatch_client)
  set_target_properties(ptqwatch_proto PROPERTIES EXPORT_NAME proto)
  set_target_properties(ptqwatch_report_proto PROPERTIES EXPORT_NAME report_proto)
  set_target_properties(ptqwatch_client PROPERTIES EXPORT_NAME client)
  _ptqwatch_install(client static ptqwatch_client ptqwatch_report_proto ptqwatch_proto)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/proto/client/include)
endif()
if(TARGET ptqwatch_client AND TARGET ptqwatch_serve)
  set_target_properties(ptqwatch_serve PROPERTIES EXPORT_NAME serve)
  _ptqwatch_install(serve static ptqwatch_serve)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/exporters/page/include)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/exporters/serve/include)
endif()

if(PTQWATCH_SHARED)
  set_target_properties(ptqwatch_shared PROPERTIES EXPORT_NAME ptqwatch)
  _ptqwatch_install(monitor shared ptqwatch_shared)
  set(monitor_libs "-lptqwatch")
  if(TARGET ptqwatch_serve_shared)
    set_target_properties(ptqwatch_serve_shared PROPERTIES EXPORT_NAME serve)
    _ptqwatch_install(serve shared ptqwatch_serve_shared)
  endif()
endif()

_ptqwatch_pkg_config(ptqwatch "${PROJECT_DESCRIPTION}" "${absl_modules}" "${monitor_libs}${torch_libs}" "${torch_cflags}")
if(TARGET ptqwatch_serve_shared)
  _ptqwatch_pkg_config(ptqwatch-serve "Serves runs over HTTP and gRPC, and reads them from a server" "ptqwatch = ${PROJECT_VERSION}"
    "-lptqwatch_serve" "")
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ptqwatchConfig.cmake.in ${PROJECT_BINARY_DIR}/ptqwatchConfig.cmake
  INSTALL_DESTINATION ${PTQWATCH_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ptqwatchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ptqwatchConfig.cmake ${PROJECT_BINARY_DIR}/ptqwatchConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake
        DESTINATION ${PTQWATCH_CMAKE_DIR} COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/proto/ptqwatch/v1/report.proto ${PROJECT_SOURCE_DIR}/proto/ptqwatch/v1/monitor_service.proto
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ptqwatch/proto/ptqwatch/v1 COMPONENT development)

foreach(tool ptqwatch quantize_checkpoint)
  if(TARGET ${tool})
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/dashboards DESTINATION ${CMAKE_INSTALL_DATADIR}/ptqwatch COMPONENT tools USE_SOURCE_PERMISSIONS
        PATTERN "__pycache__" EXCLUDE)
