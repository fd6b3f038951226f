# Libraries of kernels for NVIDIA's GPUs. CMake's own CUDA language wants a toolkit that is laid out as NVIDIA's
# installer does it, and a device to ask; what is needed of it is a command for each source.

# Data centre GPUs since 2020, as machine code; what comes later compiles the PTX of the newest when it is first used.
set(DOWNPOUR_CUDA_ARCHITECTURES
  -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90
  -gencode=arch=compute_100,code=[sm_100,compute_100])

# downpour_cuda_library(name SOURCES file.cu ...): a shared library of our own in bin/, linked with the CUDA runtime that
# LibTorch has, so that a process has one. Needs DOWNPOUR_CUDA_ROOT.
function(downpour_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(nvcc ${DOWNPOUR_CUDA_ROOT}/nvidia/cu13/bin/nvcc)
  set(objects)
  foreach(source IN LISTS ARG_SOURCES)
    cmake_path(GET source FILENAME file)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.dir/${file}.o)
    # Square roots and divisions are exact, and small numbers kept, unless one asks for less; fused multiply-add is there
    # unless one asks for none. Our arithmetic is to be that of a CPU, bit for bit.
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${nvcc} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 -lineinfo --fmad=false
        ${DOWNPOUR_CUDA_ARCHITECTURES} -I${CMAKE_SOURCE_DIR} -Werror=all-warnings
        -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wshadow,-Wconversion,-Wno-sign-conversion,-Werror
        -MD -MF ${object}.d -MT ${object} -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} ${DOWNPOUR_CUDA_ROOT}/complete
      DEPFILE ${object}.d
      COMMENT "Building CUDA object ${source}" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}.dir)
  add_library(${name} SHARED ${objects})
  set(runtime ${DOWNPOUR_TORCH_ROOT}/nvidia/cu13/lib)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    INSTALL_RPATH ${runtime} BUILD_WITH_INSTALL_RPATH TRUE)
  target_link_libraries(${name} PRIVATE ${runtime}/libcudart.so.13)
  # What is missing is told here rather than by whoever loads it.
  target_link_options(${name} PRIVATE -Wl,-z,defs)
endfunction()
