# ptqwatch_target_defaults(target): what every target of ours is compiled and linked with. Nothing of it reaches a program that links us
# but the language level.

include(CheckPIESupported)
check_pie_supported()

# The checks cost no floating-point operation another result. They are Debian's, and glibc's of buffers (which need an optimised build).
function(_ptqwatch_harden target)
  target_compile_options(${target} PRIVATE
    -fstack-protector-strong -fstack-clash-protection
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>
    $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    target_compile_options(${target} PRIVATE -fcf-protection)
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "STATIC_LIBRARY")
    target_link_options(${target} PRIVATE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
  endif()
endfunction()

function(ptqwatch_target_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                           # The codes of a quantized weight depend on the last bit.
                                           -ffp-contract=off
                                           $<$<BOOL:${PTQWATCH_WERROR}>:-Werror>)
  if(PTQWATCH_FUZZ)
    # Coverage for libFuzzer; programs without it link the same objects.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
  if(PTQWATCH_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${PTQWATCH_SANITIZER} -fno-omit-frame-pointer -g)
    target_link_options(${target} PUBLIC -fsanitize=${PTQWATCH_SANITIZER})
  elseif(PTQWATCH_HARDENING)
    _ptqwatch_harden(${target})
  endif()
endfunction()
