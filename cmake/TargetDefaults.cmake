# ptqwatch_target_defaults(target): compile and link options for all our targets. Only the language level propagates to programs that
# link them.

include(CheckPIESupported)
check_pie_supported()

# Debian's checks, and glibc's checks of buffers (which need an optimised build). They do not change the result of any floating-point
# operation.
function(_ptqwatch_harden target)
  set(cxx "$<COMPILE_LANGUAGE:CXX>")
  set(optimised "$<AND:${cxx},$<NOT:$<CONFIG:Debug>>>")
  target_compile_options(${target} PRIVATE
    $<${cxx}:-fstack-protector-strong> $<${cxx}:-fstack-clash-protection>
    $<${optimised}:-U_FORTIFY_SOURCE>
    $<${optimised}:-D_FORTIFY_SOURCE=2>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    target_compile_options(${target} PRIVATE $<${cxx}:-fcf-protection>)
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "STATIC_LIBRARY")
    target_link_options(${target} PRIVATE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
  endif()
endfunction()

# Compiles the sources of a folder as one file, which halves the build time because headers are read once per folder. Names in unnamed
# namespaces must therefore differ within a folder. -DCMAKE_UNITY_BUILD=OFF (preset `dev`) compiles each source separately.
function(_ptqwatch_unite_folders target)
  if(DEFINED CMAKE_UNITY_BUILD AND NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  if(NOT sources)
    return()
  endif()
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP "sources_${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

function(ptqwatch_target_defaults target)
  _ptqwatch_unite_folders(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF CUDA_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON CUDA_RUNTIME_LIBRARY Shared)
  # The codes of a quantized weight depend on the last bit, so neither compiler may contract operations.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-ffp-contract=off>"
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${PTQWATCH_WERROR}>>:-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-fmad=false;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PTQWATCH_WERROR}>>:-Werror=all-warnings;-Xcompiler=-Werror>")
  if(PTQWATCH_FUZZ)
    # Coverage for libFuzzer. Programs without libFuzzer link the same objects.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
  if(PTQWATCH_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${PTQWATCH_SANITIZER} -fno-omit-frame-pointer -g1)
    if(PTQWATCH_SANITIZER STREQUAL "address,undefined")
      # AddressSanitizer finds a null pointer where it is used. The checks double the compiler's time.
      target_compile_options(${target} PRIVATE -fno-sanitize=null)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${PTQWATCH_SANITIZER})
  elseif(PTQWATCH_HARDENING)
    _ptqwatch_harden(${target})
  endif()
endfunction()
