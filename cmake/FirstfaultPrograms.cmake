# Test programs, examples and benchmarks.

# firstfault_programs(FOLDER PREFIX option...): every FOLDER/NAME.cpp becomes the program PREFIX_NAME.
function(firstfault_programs folder prefix)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(source ${sources})
    cmake_path(GET source STEM name)
    add_executable(${prefix}_${name} ${source})
    firstfault_warnings(${prefix}_${name})
    target_link_libraries(${prefix}_${name} PRIVATE firstfault::live)
    target_compile_options(${prefix}_${name} PRIVATE ${ARGN})
  endforeach()
endfunction()

# firstfault_test_program(NAME LIBRARY folder...): one GoogleTest program of all *_test.cc in these folders.
function(firstfault_test_program name library)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/firstfault/ OUTPUT_VARIABLE patterns)
  list(TRANSFORM patterns APPEND /*_test.cc)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  firstfault_warnings(${name})
  target_compile_options(${name} PRIVATE -O0 -g)  # half the time to compile; what is tested is optimised
  target_link_libraries(${name} PRIVATE ${library} GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
endfunction()

if(FIRSTFAULT_BUILD_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  firstfault_test_program(core_tests firstfault::core base events record reason present)
  # Tests check JSON by parsing it.
  target_link_libraries(core_tests PRIVATE nlohmann_json::nlohmann_json)
  if(FIRSTFAULT_BUILD_LIVE)
    firstfault_test_program(live_tests firstfault::live live)
    target_link_libraries(live_tests PRIVATE hwy::hwy hwy::hwy_test)  # kernels are run on every SIMD target
  endif()
endif()
if(FIRSTFAULT_BUILD_LIVE AND FIRSTFAULT_BUILD_EXAMPLES)
  # -g so that a diagnosis can name lines; -O1 since most of the time to compile is optimising LibTorch's headers.
  firstfault_programs(examples example -g -O1)
endif()
if(FIRSTFAULT_BUILD_LIVE AND FIRSTFAULT_BUILD_BENCHMARKS)
  firstfault_programs(benchmarks bench -g)
  if(FIRSTFAULT_BUILD_PYTHON)
    add_subdirectory(benchmarks)
  endif()
endif()
