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
