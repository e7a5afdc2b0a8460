# The Python modules firstfault._core and firstfault._live, and what the wheel must carry beside them.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

# firstfault_python_module(core|live): _NAME from python/src/NAME_*.cpp. One nanobind domain, so that what _live returns
# is of the types that _core defines.
function(firstfault_python_module name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/src/${name}_*.cpp)
  nanobind_add_module(_${name} NB_STATIC NB_DOMAIN firstfault ${sources})
  firstfault_warnings(_${name})
  target_include_directories(_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(_${name} PRIVATE FIRSTFAULT_VERSION="${FIRSTFAULT_VERSION}")
  target_link_libraries(_${name} PRIVATE firstfault_${name})
  set_target_properties(_${name} PROPERTIES INSTALL_RPATH "${FIRSTFAULT_INSTALL_RPATH}")
  add_dependencies(firstfault_python _${name})
  install(TARGETS _${name} firstfault_${name} LIBRARY DESTINATION firstfault COMPONENT python EXCLUDE_FROM_ALL)
endfunction()

# firstfault_licence(NAME candidate...): puts the licence of something that ends up in the wheel into the package.
function(firstfault_licence name)
  file(GLOB candidates ${FIRSTFAULT_LICENCE_${name}} ${ARGN})
  if(NOT candidates)
    message(FATAL_ERROR "firstfault: the licence text of ${name}, which the wheel must carry, was not found; "
                        "set FIRSTFAULT_LICENCE_${name} to its path.")
  endif()
  list(GET candidates 0 licence)
  install(FILES ${licence} DESTINATION firstfault/licenses RENAME ${name}.txt COMPONENT python EXCLUDE_FROM_ALL)
endfunction()

# nanobind's hash map keeps its licence at the head of its header.
file(READ ${nanobind_DIR}/../ext/robin_map/include/tsl/robin_map.h robin_map)
string(FIND "${robin_map}" "*/" end)
string(SUBSTRING "${robin_map}" 0 ${end} robin_map)
file(WRITE ${PROJECT_BINARY_DIR}/robin_map_licence.txt "${robin_map}*/\n")

add_custom_target(firstfault_python)
firstfault_python_module(core)
target_link_libraries(_core PRIVATE firstfault_cli)
add_dependencies(firstfault_python firstfault_preload)
install(TARGETS firstfault_preload LIBRARY DESTINATION firstfault COMPONENT python EXCLUDE_FROM_ALL)
firstfault_licence(CLI11 /usr/share/doc/libcli11-dev/copyright)
firstfault_licence(nanobind ${nanobind_DIR}/../../nanobind-*.dist-info/licenses/LICENSE ${nanobind_DIR}/../LICENSE)
firstfault_licence(robin-map ${PROJECT_BINARY_DIR}/robin_map_licence.txt)
firstfault_licence(fmt /usr/share/doc/libfmt-dev/copyright)
firstfault_licence(nlohmann-json /usr/share/doc/nlohmann-json3-dev/copyright)

if(FIRSTFAULT_BUILD_LIVE)
  firstfault_python_module(live)
  find_library(TORCH_PYTHON_LIBRARY torch_python PATHS ${TORCH_INSTALL_PREFIX}/lib NO_DEFAULT_PATH REQUIRED)
  target_link_libraries(_live PRIVATE ${TORCH_PYTHON_LIBRARY})
  get_target_property(hwy_type hwy::hwy TYPE)
  if(NOT hwy_type STREQUAL STATIC_LIBRARY)
    install(FILES $<TARGET_FILE:hwy::hwy> DESTINATION firstfault RENAME $<TARGET_SONAME_FILE_NAME:hwy::hwy>
            COMPONENT python EXCLUDE_FROM_ALL)
  endif()
  firstfault_licence(highway /usr/share/doc/libhwy-dev/copyright)
  firstfault_licence(Apache-2.0 /usr/share/common-licenses/Apache-2.0)  # highway.txt refers to it
endif()
