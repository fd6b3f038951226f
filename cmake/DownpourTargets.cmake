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
  foreach(f ${ARG_SOURCES}) #TEMP
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${f}) #TEMP
      message(WARNING "skipping ${name}: no ${f}") #TEMP
      return() #TEMP
    endif() #TEMP
  endforeach() #TEMP
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} downpour_options)
endfunction()

# downpour_test(name SOURCES ... DEPENDS ... [LABELS unit|simulation|integration] [TIMEOUT seconds] [ARGS ...]):
# a GoogleTest program registered with ctest. Without LABELS it is a unit test.
function(downpour_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGS;ENVIRONMENT" ${ARGN})
  foreach(f ${ARG_SOURCES}) #TEMP
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${f}) #TEMP
      message(WARNING "skipping ${name}: no ${f}") #TEMP
      return() #TEMP
    endif() #TEMP
  endforeach() #TEMP
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main downpour_options)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
