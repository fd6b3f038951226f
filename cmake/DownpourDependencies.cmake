# Third parties, all from Debian but LibTorch and Apache Arrow (docker/setup.sh). Their headers are system headers.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf MODULE REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(GTest REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(cpprestsdk CONFIG REQUIRED)
find_package(simdjson CONFIG REQUIRED)
find_package(CURL 7.88 REQUIRED)
find_package(pugixml CONFIG REQUIRED)

if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

# libyaml, of which Debian's package has no CMake configuration.
find_path(LIBYAML_INCLUDE_DIR yaml.h REQUIRED)
find_library(LIBYAML_LIBRARY yaml REQUIRED)
add_library(yaml::yaml UNKNOWN IMPORTED)
set_target_properties(yaml::yaml PROPERTIES
  IMPORTED_LOCATION ${LIBYAML_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LIBYAML_INCLUDE_DIR})

if(DOWNPOUR_TORCH)
  set(DOWNPOUR_TORCH_ROOT ${CMAKE_SOURCE_DIR}/.deps/libtorch-2.11.0 CACHE PATH "LibTorch, as docker/setup.sh lays it out")
  if(NOT EXISTS ${DOWNPOUR_TORCH_ROOT}/complete)
    message(FATAL_ERROR "LibTorch is not in ${DOWNPOUR_TORCH_ROOT}: run docker/setup.sh, or configure with -DDOWNPOUR_TORCH=OFF")
  endif()
  # Only the wrapper target may see these headers: the wheel carries protobuf headers of its own.
  add_library(downpour_torch INTERFACE)
  target_include_directories(downpour_torch SYSTEM INTERFACE
    ${DOWNPOUR_TORCH_ROOT}/torch/include ${DOWNPOUR_TORCH_ROOT}/torch/include/torch/csrc/api/include)
  target_link_libraries(downpour_torch INTERFACE
    ${DOWNPOUR_TORCH_ROOT}/torch/lib/libtorch_cpu.so ${DOWNPOUR_TORCH_ROOT}/torch/lib/libc10.so)
  target_link_options(downpour_torch INTERFACE -Wl,-rpath-link,${DOWNPOUR_TORCH_ROOT}/nvidia/cu13/lib)
endif()

# Kernels for GPUs: DOWNPOUR_CUDA_ROOT is empty where none are built. A sanitizer knows nothing of what a GPU does.
set(DOWNPOUR_CUDA_ROOT)
if(DOWNPOUR_CUDA AND DOWNPOUR_TORCH AND NOT DOWNPOUR_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(DOWNPOUR_CUDA_TOOLKIT ${CMAKE_SOURCE_DIR}/.deps/cuda-toolkit-13.0 CACHE PATH "CUDA, as docker/setup.sh lays it out")
  if(EXISTS ${DOWNPOUR_CUDA_TOOLKIT}/complete)
    set(DOWNPOUR_CUDA_ROOT ${DOWNPOUR_CUDA_TOOLKIT})
    set(DOWNPOUR_CUPTI_INCLUDE ${CMAKE_SOURCE_DIR}/.deps/cupti-13.0/nvidia/cu13/include)
    include(DownpourCuda)
  else()
    message(STATUS "The CUDA compiler is not in ${DOWNPOUR_CUDA_TOOLKIT} (docker/setup.sh): no kernels for GPUs")
  endif()
endif()

if(DOWNPOUR_ARROW)
  set(DOWNPOUR_ARROW_ROOT ${CMAKE_SOURCE_DIR}/.deps/arrow-26.0.1 CACHE PATH "Apache Arrow, as docker/setup.sh lays it out")
  if(NOT EXISTS ${DOWNPOUR_ARROW_ROOT}/complete)
    message(FATAL_ERROR "Arrow is not in ${DOWNPOUR_ARROW_ROOT}: run docker/setup.sh, or configure with -DDOWNPOUR_ARROW=OFF")
  endif()
  # Arrow::arrow, Arrow::arrow_s3 and Arrow::parquet: the libraries find each other, as they lie in one folder.
  foreach(library arrow arrow_s3 parquet)
    add_library(Arrow::${library} SHARED IMPORTED)
    set_target_properties(Arrow::${library} PROPERTIES
      IMPORTED_LOCATION ${DOWNPOUR_ARROW_ROOT}/pyarrow/lib${library}.so.2600
      INTERFACE_INCLUDE_DIRECTORIES ${DOWNPOUR_ARROW_ROOT}/pyarrow/include)
  endforeach()
  target_link_libraries(Arrow::arrow_s3 INTERFACE Arrow::arrow)
  target_link_libraries(Arrow::parquet INTERFACE Arrow::arrow)
endif()
