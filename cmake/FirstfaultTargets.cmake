# How a library of this project is made from the folders under firstfault/.

function(firstfault_warnings target)
  # Left out: fields that keep their default in {.field = value}; and GCC 12's false alarms on std::string.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers -Wno-restrict)
endfunction()

# firstfault_sources(VARIABLE folder...): the .cpp files of these folders of firstfault/, at any depth.
function(firstfault_sources variable)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/firstfault/ OUTPUT_VARIABLE patterns)
  list(TRANSFORM patterns APPEND /*.cpp)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# firstfault_library(core|live sources...): libfirstfault_NAME.so, which exports namespace firstfault and nothing else.
function(firstfault_library name)
  set(target firstfault_${name})
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  add_library(${target} SHARED ${ARGN})
  add_library(firstfault::${name} ALIAS ${target})
  firstfault_warnings(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--version-script=${exports})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} INSTALL_RPATH "${FIRSTFAULT_INSTALL_RPATH}"
                                             LINK_DEPENDS ${exports})
endfunction()
