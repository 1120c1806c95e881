# find_package(kernelpack): a project builds op libraries from Python files. Its folder is what `kernelpack --cmake-dir` prints.
#
#   kernelpack_add_library(my SOURCES my_ops.py TARGETS cpu:native cuda:sm_90a)
#
# builds torch.ops.my.* as `kernelpack build` does, again whenever a source changes, and gives two targets to link to:
#   my::ops      a program that is linked to it and to torch has the ops
#   my::kernels  the C functions of kernels, declared in my_kernels.h, which need no torch
# DEPENDS names files beside SOURCES that the kernels are made of. KERNELPACK_PYTHON is the Python that has kernelpack; by default that of
# find_package(Python3).
include_guard(GLOBAL)

function(kernelpack_add_library namespace)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "" "SOURCES;TARGETS;DEPENDS")
  if(given_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kernelpack_add_library(${namespace}): unknown arguments ${given_UNPARSED_ARGUMENTS}")
  endif()
  foreach(needed SOURCES TARGETS)
    if(NOT given_${needed})
      message(FATAL_ERROR "kernelpack_add_library(${namespace}): ${needed} is missing")
    endif()
  endforeach()
  if(NOT KERNELPACK_PYTHON)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(KERNELPACK_PYTHON "${Python3_EXECUTABLE}")
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${namespace}")
  set(library "${folder}/lib${namespace}_ops.so")
  set(sources)
  foreach(source IN LISTS given_SOURCES)
    get_filename_component(path "${source}" ABSOLUTE)
    list(APPEND sources "${path}")
  endforeach()
  list(JOIN given_TARGETS "," targets)
  add_custom_command(
    OUTPUT "${library}"
    COMMAND "${KERNELPACK_PYTHON}" -m kernelpack build ${sources} --namespace "${namespace}" --target "${targets}" --out "${folder}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${library}" # a change that makes no difference leaves it as it was
    DEPENDS ${sources} ${given_DEPENDS}
    COMMENT "kernelpack builds ${namespace}"
    VERBATIM)
  add_custom_target("kernelpack_${namespace}" DEPENDS "${library}")
  file(MAKE_DIRECTORY "${folder}/cpp") # CMake asks for the folder before the build has written it
  add_library("${namespace}::kernels" SHARED IMPORTED GLOBAL)
  set_target_properties("${namespace}::kernels" PROPERTIES
    IMPORTED_LOCATION "${library}"
    IMPORTED_SONAME "lib${namespace}_ops.so"
    INTERFACE_INCLUDE_DIRECTORIES "${folder}/cpp")
  add_library("${namespace}::ops" INTERFACE IMPORTED GLOBAL)
  set_target_properties("${namespace}::ops" PROPERTIES INTERFACE_LINK_LIBRARIES
    "${namespace}::kernels;-Wl,--push-state,--no-as-needed,${library},--pop-state")
  add_dependencies("${namespace}::kernels" "kernelpack_${namespace}")
  add_dependencies("${namespace}::ops" "kernelpack_${namespace}")
endfunction()
