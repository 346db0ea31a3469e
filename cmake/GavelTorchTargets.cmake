# A LibTorch as two targets, for this build and, installed, for those who use the package:
#   gavel::torch       libtorch_cpu and c10; enough for tensors, modules, optimizers (starts in 0.2 s)
#   gavel::torch_cuda  the same and, when this LibTorch has CUDA, libtorch_cuda and c10_cuda
#
# gavel_describe_torch(ROOT)  sets GAVEL_TORCH_VERSION, GAVEL_TORCH_CXX11_ABI (0, 1), GAVEL_TORCH_CUDA
# gavel_import_torch(ROOT)    by its files; the CMake files of a wheel demand a CUDA toolkit
# gavel_find_torch(DIR)       by its own TorchConfig.cmake in DIR
# The last two set TORCH_INCLUDES and TORCH_LIBRARY_DIR.

function(gavel_describe_torch root)
  set(version)
  set(header ${root}/include/torch/headeronly/version.h)  # before 2.9 in another folder
  if(NOT EXISTS ${header})
    set(header ${root}/include/torch/csrc/api/include/torch/version.h)
  endif()
  if(EXISTS ${header})
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS ${header} line REGEX "define TORCH_VERSION_${part} [0-9]+")
      string(REGEX MATCH "[0-9]+$" number "${line}")
      list(APPEND version ${number})
    endforeach()
  endif()
  list(JOIN version "." version)
  set(GAVEL_TORCH_VERSION "${version}" PARENT_SCOPE)
  # Its headers do not say it; the names of its functions that take a std::string do.
  set(GAVEL_TORCH_CXX11_ABI 0 PARENT_SCOPE)
  if(EXISTS ${root}/lib/libc10.so)
    file(STRINGS ${root}/lib/libc10.so found REGEX "_ZN3c10.*__cxx1112basic_string" LIMIT_COUNT 1)
    if(found)
      set(GAVEL_TORCH_CXX11_ABI 1 PARENT_SCOPE)
    endif()
  endif()
  set(GAVEL_TORCH_CUDA OFF PARENT_SCOPE)
  if(EXISTS ${root}/lib/libtorch_cuda.so)
    set(GAVEL_TORCH_CUDA ON PARENT_SCOPE)
  endif()
endfunction()

function(gavel_import_library target file)
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${file})
endfunction()

macro(gavel_declare_torch_targets)
  add_library(gavel::torch INTERFACE IMPORTED GLOBAL)
  add_library(gavel::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(gavel::torch_cuda INTERFACE gavel::torch)
endmacro()

function(gavel_import_torch root)
  gavel_declare_torch_targets()
  # Beside the wheel of LibTorch are those of the CUDA libraries.
  get_filename_component(nvidia ${root}/../nvidia ABSOLUTE)
  file(GLOB includes ${nvidia}/cu*/include ${nvidia}/cuda_*/include ${nvidia}/nccl/include)
  file(GLOB libraries ${nvidia}/*/lib)
  list(PREPEND includes ${root}/include ${root}/include/torch/csrc/api/include)
  target_include_directories(gavel::torch SYSTEM INTERFACE ${includes})

  gavel_import_library(gavel::c10 ${root}/lib/libc10.so)
  gavel_import_library(gavel::torch_cpu ${root}/lib/libtorch_cpu.so)
  target_link_libraries(gavel::torch INTERFACE gavel::torch_cpu gavel::c10)
  # LibTorch's libraries find one another by their own RPATH at run time, the linker by this.
  list(JOIN libraries ":" rpath_link)
  target_link_options(gavel::torch INTERFACE "LINKER:-rpath-link,${root}/lib:${rpath_link}")

  if(EXISTS ${root}/lib/libtorch_cuda.so)
    gavel_import_library(gavel::c10_cuda ${root}/lib/libc10_cuda.so)
    gavel_import_library(gavel::torch_with_cuda ${root}/lib/libtorch_cuda.so)
    file(GLOB cudart ${nvidia}/*/lib/libcudart.so.*)
    file(GLOB nccl ${nvidia}/*/lib/libnccl.so.*)
    # libtorch_cuda registers its operators when loaded: no symbol of ours need refer to it. The
    # others must be loaded by the program, too, for libgavel_runtime.so to find them.
    target_link_libraries(gavel::torch_cuda INTERFACE
                          -Wl,--push-state,--no-as-needed gavel::torch_with_cuda gavel::c10_cuda
                          ${cudart} ${nccl} -Wl,--pop-state)
  endif()
  set(TORCH_INCLUDES ${includes} PARENT_SCOPE)
  set(TORCH_LIBRARY_DIR ${root}/lib PARENT_SCOPE)
endfunction()

# A macro: TorchConfig.cmake may enable CUDA as a language.
macro(gavel_find_torch config_dir)
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "8.0;9.0")  # otherwise compute_50, which no current nvcc knows
  endif()
  find_package(Torch REQUIRED CONFIG PATHS ${config_dir} NO_DEFAULT_PATH)
  if(TARGET caffe2::mkl)
    set_target_properties(caffe2::mkl PROPERTIES INTERFACE_LINK_DIRECTORIES "")
  endif()
  gavel_declare_torch_targets()
  set(TORCH_INCLUDES ${TORCH_INCLUDE_DIRS})
  get_filename_component(TORCH_LIBRARY_DIR ${TORCH_LIBRARY} DIRECTORY)
  target_link_libraries(gavel::torch INTERFACE ${TORCH_LIBRARIES})
  target_compile_options(gavel::torch INTERFACE ${TORCH_CXX_FLAGS})
  target_include_directories(gavel::torch SYSTEM INTERFACE ${TORCH_INCLUDES})
endmacro()
