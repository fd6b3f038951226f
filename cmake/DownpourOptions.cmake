# Language, warnings, linker and sanitizers for every target of our own.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

set(DOWNPOUR_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
option(DOWNPOUR_TORCH "Build the worker and what needs LibTorch" ON)
option(DOWNPOUR_CUDA "Build the library of kernels for GPUs, where LibTorch and the CUDA compiler are there" ON)
option(DOWNPOUR_ARROW "Build what reads Parquet and remote files, with Apache Arrow" ON)
option(DOWNPOUR_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths relative to the checkout, so that another checkout of the same sources hits.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  # Segments begin at pages: mold 1.10 lets the one that is protected after relocation begin a few bytes before, where
  # there may be no page, and then the program does not start.
  add_link_options(-fuse-ld=mold -Wl,-z,separate-code)
endif()

add_library(downpour_options INTERFACE)
target_include_directories(downpour_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(downpour_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  -Wold-style-cast -Werror)
target_compile_definitions(downpour_options INTERFACE $<$<NOT:$<CONFIG:Release>>:_GLIBCXX_ASSERTIONS>)

if(DOWNPOUR_SANITIZE)
  add_compile_options(-fsanitize=${DOWNPOUR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DOWNPOUR_SANITIZE})
endif()
