# For plug-ins, here and in the installed package.

# downpour_add_plugin(name sources...): a shared library name.so that spec.model.plugin.path can name.
function(downpour_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE Downpour::plugin)
  # Only what Downpour looks for is to be seen: two plug-ins may both have a class Net.
  set_target_properties(${name} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # What is missing is told here rather than by the worker.
  target_link_options(${name} PRIVATE -Wl,-z,defs)
endfunction()

# The version of the LibTorch with this folder of headers; empty: there is none.
function(downpour_torch_version include_directory result)
  set(version "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    foreach(part MAJOR MINOR PATCH)
      if(EXISTS ${include_directory}/${header})
        file(STRINGS ${include_directory}/${header} line REGEX "define TORCH_VERSION_${part} +[0-9]+")
        if(line MATCHES "TORCH_VERSION_${part} +([0-9]+)")
          list(APPEND version ${CMAKE_MATCH_1})
        endif()
      endif()
    endforeach()
    if(version)
      break()
    endif()
  endforeach()
  list(JOIN version "." version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()
