# The program `firstfault`, and the library of its commands, which the Python module _core links too.

find_package(CLI11 REQUIRED)
file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.cpp)
list(REMOVE_ITEM cli_sources ${PROJECT_SOURCE_DIR}/cli/main.cpp)
add_library(firstfault_cli STATIC ${cli_sources})
firstfault_warnings(firstfault_cli)
set_target_properties(firstfault_cli PROPERTIES CXX_VISIBILITY_PRESET hidden)
target_compile_definitions(firstfault_cli PRIVATE FIRSTFAULT_VERSION="${FIRSTFAULT_VERSION}")
target_link_libraries(firstfault_cli PUBLIC firstfault_core
                      PRIVATE fmt::fmt-header-only nlohmann_json::nlohmann_json CLI11::CLI11)

add_executable(firstfault_program ${PROJECT_SOURCE_DIR}/cli/main.cpp)
firstfault_warnings(firstfault_program)
target_link_libraries(firstfault_program PRIVATE firstfault_cli)
set_target_properties(firstfault_program PROPERTIES OUTPUT_NAME firstfault
                                                    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

# What `firstfault run ./program` loads into it. Plain C++ without LibTorch: the process may hold another one, or none.
add_library(firstfault_preload SHARED ${PROJECT_SOURCE_DIR}/cli/preload/preload.cpp)
firstfault_warnings(firstfault_preload)
set_target_properties(firstfault_preload PROPERTIES CXX_VISIBILITY_PRESET hidden)
# Sanitizers would have to be loaded before it.
target_compile_options(firstfault_preload PRIVATE -fno-exceptions -fno-rtti -fno-sanitize=all)
target_link_options(firstfault_preload PRIVATE -Wl,-z,defs -nodefaultlibs -fno-sanitize=all)
target_link_libraries(firstfault_preload PRIVATE c ${CMAKE_DL_LIBS})
