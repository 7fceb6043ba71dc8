# What `cmake --install` puts where. CMake's components are those of packages: `runtime` (shared libraries), `development` (headers,
# archives, CMake and pkg-config files) and `tools` (commands, dashboards). Those of find_package are monitor, prometheus, grpc and client; each has
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
if(TARGET ptqwatch_security)
  set_target_properties(ptqwatch_security PROPERTIES EXPORT_NAME security)
  _ptqwatch_install(security static ptqwatch_security)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/exporters/security/include)
endif()
if(TARGET ptqwatch_prometheus)
  set_target_properties(ptqwatch_prometheus PROPERTIES EXPORT_NAME prometheus)
  set_target_properties(ptqwatch_httplib PROPERTIES EXPORT_NAME httplib)
  _ptqwatch_install(prometheus static ptqwatch_prometheus ptqwatch_httplib)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/exporters/prometheus/include)
endif()
if(TARGET ptqwatch_grpc)
  set_target_properties(ptqwatch_grpc PROPERTIES EXPORT_NAME grpc)
  set_target_properties(ptqwatch_proto PROPERTIES EXPORT_NAME proto)
  set_target_properties(ptqwatch_report_proto PROPERTIES EXPORT_NAME report_proto)
  set_target_properties(ptqwatch_client PROPERTIES EXPORT_NAME client)
  _ptqwatch_install(grpc static ptqwatch_grpc ptqwatch_client ptqwatch_report_proto ptqwatch_proto)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/exporters/grpc/include)
  _ptqwatch_install_headers(${PROJECT_SOURCE_DIR}/proto/client/include)
endif()

if(PTQWATCH_SHARED)
  set_target_properties(ptqwatch_shared PROPERTIES EXPORT_NAME ptqwatch)
  _ptqwatch_install(monitor shared ptqwatch_shared)
  set(monitor_libs "-lptqwatch")
  foreach(exporter prometheus grpc)
    if(TARGET ptqwatch_${exporter}_shared)
      set_target_properties(ptqwatch_${exporter}_shared PROPERTIES EXPORT_NAME ${exporter})
      _ptqwatch_install(${exporter} shared ptqwatch_${exporter}_shared)
    endif()
  endforeach()
endif()

_ptqwatch_pkg_config(ptqwatch "${PROJECT_DESCRIPTION}" "${absl_modules}" "${monitor_libs}${torch_libs}" "${torch_cflags}")
if(PTQWATCH_SHARED AND TARGET ptqwatch_prometheus)
  _ptqwatch_pkg_config(ptqwatch-prometheus "Serves what ptqwatch measures to Prometheus" "ptqwatch = ${PROJECT_VERSION}" "-lptqwatch_prometheus" "")
endif()
if(PTQWATCH_SHARED AND TARGET ptqwatch_grpc)
  _ptqwatch_pkg_config(ptqwatch-grpc "Serves what ptqwatch measures over gRPC, and reads it" "ptqwatch = ${PROJECT_VERSION}" "-lptqwatch_grpc" "")
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
if(TARGET ptqwatch AND NOT CMAKE_CROSSCOMPILING)  # it writes them itself
  set(manual ${PROJECT_BINARY_DIR}/ptqwatch.1)
  set(bash ${PROJECT_BINARY_DIR}/completion/ptqwatch)
  set(zsh ${PROJECT_BINARY_DIR}/completion/_ptqwatch)
  set(fish ${PROJECT_BINARY_DIR}/completion/ptqwatch.fish)
  find_program(GZIP_PROGRAM gzip REQUIRED)
  add_custom_command(
    OUTPUT ${manual}.gz ${bash} ${zsh} ${fish}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/completion
    COMMAND $<TARGET_FILE:ptqwatch> man > ${manual}
    COMMAND ${GZIP_PROGRAM} -9nf ${manual}
    COMMAND $<TARGET_FILE:ptqwatch> completion bash > ${bash}
    COMMAND $<TARGET_FILE:ptqwatch> completion zsh > ${zsh}
    COMMAND $<TARGET_FILE:ptqwatch> completion fish > ${fish}
    DEPENDS ptqwatch
    COMMENT "Writing the manual page and shell completion of ptqwatch" VERBATIM)
  add_custom_target(ptqwatch_manual ALL DEPENDS ${manual}.gz ${bash} ${zsh} ${fish})
  install(FILES ${manual}.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(FILES ${bash} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
  install(FILES ${zsh} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT tools)
  install(FILES ${fish} DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/dashboards DESTINATION ${CMAKE_INSTALL_DATADIR}/ptqwatch COMPONENT tools USE_SOURCE_PERMISSIONS
        PATTERN "__pycache__" EXCLUDE)
