# downpour_library(name SOURCES ... DEPENDS ...): a static library of our own code.
function(downpour_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE downpour_options)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

# downpour_binary(name SOURCES ... DEPENDS ...): a program of our own code, in bin/.
function(downpour_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} downpour_options)
endfunction()

# The tests of what links no gRPC: state machines, planner, formats, simulation.
add_custom_target(core_tests)
set(core_test_names "^(core|planner|simulation|api|wire_crc32c|wire_frame|wire_local|collective_(ring_plan|fake|contract|local|nccl))_")

# What a test itself does is little beside what it tests: optimizing it takes a third of the time of a build, and asking
# of each of its pointers whether it is null half of that with sanitizers.
set(test_source_options -O0)
if(DOWNPOUR_SANITIZE MATCHES "undefined")
  list(APPEND test_source_options -fno-sanitize=null,alignment,vptr,object-size)
endif()

# downpour_test(name SOURCES ... DEPENDS ... [LABELS unit|simulation|integration] [TIMEOUT seconds] [ARGS ...]):
# a GoogleTest program registered with ctest. Without LABELS it is a unit test. Those labelled integration run alone:
# they start processes that race each other, and have the machine to themselves for it. What may take longest begins
# first, or a core would be idle in the end.
function(downpour_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGS;ENVIRONMENT" ${ARGN})
  # ThreadSanitizer sees no lock inside an uninstrumented gRPC: only what links none runs under it.
  if(DOWNPOUR_SANITIZE STREQUAL "thread" AND NOT name MATCHES "${core_test_names}")
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set(test_sources ${ARG_SOURCES})
  list(FILTER test_sources INCLUDE REGEX "_test\\.cc$")
  set_property(SOURCE ${test_sources} APPEND PROPERTY COMPILE_OPTIONS ${test_source_options})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main downpour_options)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(DOWNPOUR_SANITIZE)
    # The simulation has one thread: ThreadSanitizer has little to find in it.
    set(simulation_seeds 150)
    if(DOWNPOUR_SANITIZE STREQUAL "thread")
      set(simulation_seeds 30)
    endif()
    # The simulation frees millions of blocks: with the usual quarantine of 256 MiB a process touches 850 MiB, and was
    # ten times slower on a machine that is slow to give memory.
    list(APPEND ARG_ENVIRONMENT DOWNPOUR_SIMULATION_SEEDS=${simulation_seeds}
      "ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=12"
      "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tools/lsan.supp:print_suppressions=0"
      "UBSAN_OPTIONS=print_stacktrace=1")
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  if(name MATCHES "${core_test_names}")
    add_dependencies(core_tests ${name})
    list(APPEND ARG_LABELS core)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    COST ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}")
  if("integration" IN_LIST ARG_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
