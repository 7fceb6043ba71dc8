# Defines ptqwatch::cuda_libraries: the CUDA runtime and cuBLAS. They are LibTorch's own files where it brings them, else the toolkit's,
# because cuBLAS of one build does not work with cuBLASLt of another. Include it after LibTorch and the toolkit have been found.
#
# Output: PTQWATCH_CUDA_FILES, the paths of both.

set(PTQWATCH_CUDA_FILES "")
if(LibTorch_CUDA_MAJOR AND LibTorch_CUDA_MAJOR EQUAL CUDAToolkit_VERSION_MAJOR)
  foreach(library cudart cublas)
    # PyPI's wheels of CUDA 13, then of CUDA 12, then the zip.
    foreach(folder ../nvidia/cu${LibTorch_CUDA_MAJOR}/lib ../nvidia/cuda_runtime/lib ../nvidia/${library}/lib lib)
      file(GLOB paths "${LibTorch_ROOT}/${folder}/lib${library}.so.*" "${LibTorch_ROOT}/${folder}/lib${library}-*.so.*")
      if(paths)
        list(GET paths 0 path)
        cmake_path(NORMAL_PATH path)
        list(APPEND PTQWATCH_CUDA_FILES "${path}")
        break()
      endif()
    endforeach()
  endforeach()
endif()
list(LENGTH PTQWATCH_CUDA_FILES count)
if(NOT count EQUAL 2)
  set(PTQWATCH_CUDA_FILES "${CUDA_cudart_LIBRARY}" "${CUDA_cublas_LIBRARY}")
endif()
if(NOT TARGET ptqwatch::cuda_libraries)
  add_library(ptqwatch::cuda_libraries INTERFACE IMPORTED)
  target_include_directories(ptqwatch::cuda_libraries SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(ptqwatch::cuda_libraries INTERFACE ${PTQWATCH_CUDA_FILES})
endif()
