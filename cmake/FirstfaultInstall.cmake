# What `cmake --install` puts down for C++: headers, libraries, and a CMake package with the components core and live.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/firstfault)

# firstfault_install(core|live header...)
function(firstfault_install name)
  install(TARGETS firstfault_${name} EXPORT firstfault_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT cpp)
  install(EXPORT firstfault_${name} NAMESPACE firstfault:: FILE firstfault-${name}.cmake DESTINATION ${package_dir}
          COMPONENT cpp)
  foreach(folder ${ARGN})
    install(DIRECTORY firstfault/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/firstfault COMPONENT cpp
            FILES_MATCHING PATTERN "*.h" PATTERN "hand_made*.h" EXCLUDE PATTERN "test_files.h" EXCLUDE  # for tests
            PATTERN "*_parts.h" EXCLUDE  # internal
            PATTERN "storage" EXCLUDE)  # needs SQLite's headers
  endforeach()
endfunction()

firstfault_install(core base events detect guard record reason present)
if(FIRSTFAULT_BUILD_LIVE)
  firstfault_install(live live)
endif()
install(TARGETS firstfault_program firstfault_preload RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(FILES firstfault/firstfault.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/firstfault COMPONENT cpp)

configure_package_config_file(cmake/firstfaultConfig.cmake.in firstfaultConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(firstfaultConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/firstfaultConfig.cmake ${PROJECT_BINARY_DIR}/firstfaultConfigVersion.cmake
              cmake/FirstfaultTorch.cmake
        DESTINATION ${package_dir} COMPONENT cpp)
