# Finds the LibTorch that firstfault's live half runs on. Used by the build and by the installed package.

# firstfault_find_torch(VARIABLE): finds Torch and sets VARIABLE to "", or to what is wrong. Where CMake's own search
# path has no Torch, the torch wheel of the Python in use (Python_EXECUTABLE, else the active virtual environment, else
# python3) is taken. A macro, since find_package(Torch) sets variables that its user needs.
macro(firstfault_find_torch problem)
  set(${problem} "")
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    find_package(Python QUIET COMPONENTS Interpreter)
    if(Python_Interpreter_FOUND)
      # find_spec does not import torch, which would take seconds.
      execute_process(
        COMMAND ${Python_EXECUTABLE} -c
                "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        OUTPUT_VARIABLE firstfault_torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(firstfault_torch_dir)
        find_package(Torch QUIET PATHS ${firstfault_torch_dir}/share/cmake NO_DEFAULT_PATH)
      endif()
    endif()
  endif()
  if(NOT Torch_FOUND)
    set(${problem} "LibTorch was not found. Install it with 'pip install torch==2.13.0' into the Python in use \
(${Python_EXECUTABLE}), or add a LibTorch folder to CMAKE_PREFIX_PATH.")
  elseif(NOT Torch_VERSION MATCHES "^2\\.13\\.")
    set(${problem} "LibTorch ${Torch_VERSION} is in ${Torch_DIR}, but this firstfault works with 2.13 only. \
Install it with 'pip install torch==2.13.0', or put a LibTorch 2.13 first in CMAKE_PREFIX_PATH.")
  endif()
endmacro()
