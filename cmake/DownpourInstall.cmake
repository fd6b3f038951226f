# cmake --install BUILD --prefix PREFIX: the programs, and what plug-ins are built with; --component plugin: the latter
# alone.
include(CMakePackageConfigHelpers)
include(DownpourPlugin)

foreach(program downpour downpour-data downpour-server downpour-operator downpour-worker)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION bin COMPONENT programs)
  endif()
endforeach()

if(TARGET downpour_cuda)
  install(TARGETS downpour_cuda LIBRARY DESTINATION lib COMPONENT programs)
endif()

if(DOWNPOUR_ARROW AND TARGET downpour-data)
  set_target_properties(downpour-data PROPERTIES INSTALL_RPATH ${DOWNPOUR_ARROW_ROOT}/pyarrow BUILD_WITH_INSTALL_RPATH TRUE)
endif()
if(DOWNPOUR_TORCH)
  # LibTorch and Arrow stay where they are; if they move, LD_LIBRARY_PATH has to say where to. Linked so at once: CMake
  # would leave room for a change, which the loader takes for the working directory.
  set(rpath ${DOWNPOUR_TORCH_ROOT}/torch/lib)
  if(DOWNPOUR_ARROW)
    list(APPEND rpath ${DOWNPOUR_ARROW_ROOT}/pyarrow)
  endif()
  set_target_properties(downpour-worker PROPERTIES INSTALL_RPATH "${rpath}" BUILD_WITH_INSTALL_RPATH TRUE)

  set(package lib/cmake/Downpour)
  downpour_torch_version(${DOWNPOUR_TORCH_ROOT}/torch/include DOWNPOUR_TORCH_VERSION)
  configure_package_config_file(cmake/DownpourConfig.cmake.in ${CMAKE_BINARY_DIR}/DownpourConfig.cmake
    INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/DownpourConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(DIRECTORY trainer/plugin/include/ DESTINATION include COMPONENT plugin)
  install(FILES ${CMAKE_BINARY_DIR}/DownpourConfig.cmake ${CMAKE_BINARY_DIR}/DownpourConfigVersion.cmake
    cmake/DownpourPlugin.cmake DESTINATION ${package} COMPONENT plugin)
endif()
