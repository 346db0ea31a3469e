# LibTorch as two targets:
#   gavel::torch       libtorch_cpu and c10; enough for tensors, modules, optimizers (starts in 0.2 s)
#   gavel::torch_cuda  the same and, when this LibTorch has CUDA, libtorch_cuda and c10_cuda
# Both define GAVEL_HAS_CUDA, GAVEL_HAS_NCCL, GAVEL_HAS_GLOO when LibTorch and its headers have them.
#
# A LibTorch of the user (CMAKE_PREFIX_PATH or Torch_DIR, CPU-only too) comes first, then the wheel
# that `gavel-dev setup` installs. The wheel's own CMake files demand a CUDA toolkit, hence ours.

include(GavelCache)

set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know CUDA20

function(gavel_import_library target file)
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${file})
endfunction()

# Sets TORCH_INCLUDES, TORCH_LIBRARY_DIR and links gavel::torch, gavel::torch_cuda to the wheel.
macro(gavel_use_torch_wheel)
  set(torch_root ${GAVEL_SITE_PACKAGES}/torch)
  if(NOT EXISTS ${torch_root}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "No LibTorch: none in CMAKE_PREFIX_PATH, and no wheel in ${GAVEL_CACHE_DIR}. "
                        "Run ./gavel-dev setup, give -DCMAKE_PREFIX_PATH=<libtorch>, "
                        "or build without it: -DGAVEL_WITH_TORCH=OFF.")
  endif()
  set(TORCH_LIBRARY_DIR ${torch_root}/lib)
  set(TORCH_INCLUDES ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
  file(GLOB nvidia_includes ${GAVEL_SITE_PACKAGES}/nvidia/cu*/include
       ${GAVEL_SITE_PACKAGES}/nvidia/cuda_*/include ${GAVEL_SITE_PACKAGES}/nvidia/nccl/include)
  file(GLOB nvidia_libraries ${GAVEL_SITE_PACKAGES}/nvidia/*/lib)
  list(APPEND TORCH_INCLUDES ${nvidia_includes})

  gavel_import_library(gavel_c10 ${TORCH_LIBRARY_DIR}/libc10.so)
  gavel_import_library(gavel_torch_cpu ${TORCH_LIBRARY_DIR}/libtorch_cpu.so)
  target_link_libraries(gavel::torch INTERFACE gavel_torch_cpu gavel_c10)
  # The wheel's libraries find one another by their own RPATH at run time, the linker by this.
  list(JOIN nvidia_libraries ":" rpath_link)
  target_link_options(gavel::torch INTERFACE "LINKER:-rpath-link,${TORCH_LIBRARY_DIR}:${rpath_link}")

  if(EXISTS ${TORCH_LIBRARY_DIR}/libtorch_cuda.so)
    gavel_import_library(gavel_c10_cuda ${TORCH_LIBRARY_DIR}/libc10_cuda.so)
    gavel_import_library(gavel_torch_cuda ${TORCH_LIBRARY_DIR}/libtorch_cuda.so)
    file(GLOB cudart ${GAVEL_SITE_PACKAGES}/nvidia/*/lib/libcudart.so.*)
    file(GLOB nccl ${GAVEL_SITE_PACKAGES}/nvidia/*/lib/libnccl.so.*)
    # libtorch_cuda registers its operators when loaded: no symbol of ours need refer to it.
    target_link_libraries(gavel::torch_cuda INTERFACE -Wl,--push-state,--no-as-needed gavel_torch_cuda
                          -Wl,--pop-state gavel_c10_cuda ${cudart} ${nccl})
  endif()
endmacro()

macro(gavel_use_users_torch config_dir)
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "8.0;9.0")  # otherwise compute_50, which no current nvcc knows
  endif()
  find_package(Torch REQUIRED CONFIG PATHS ${config_dir} NO_DEFAULT_PATH)
  if(TARGET caffe2::mkl)
    set_target_properties(caffe2::mkl PROPERTIES INTERFACE_LINK_DIRECTORIES "")
  endif()
  set(TORCH_INCLUDES ${TORCH_INCLUDE_DIRS})
  get_filename_component(TORCH_LIBRARY_DIR ${TORCH_LIBRARY} DIRECTORY)
  target_link_libraries(gavel::torch INTERFACE ${TORCH_LIBRARIES})
  target_compile_options(gavel::torch INTERFACE ${TORCH_CXX_FLAGS})
endmacro()

add_library(gavel::torch INTERFACE IMPORTED GLOBAL)
add_library(gavel::torch_cuda INTERFACE IMPORTED GLOBAL)
find_path(GAVEL_USERS_TORCH_DIR TorchConfig.cmake PATHS ${Torch_DIR} ${CMAKE_PREFIX_PATH}
          PATH_SUFFIXES share/cmake/Torch lib/cmake/Torch NO_DEFAULT_PATH)
if(GAVEL_USERS_TORCH_DIR)
  gavel_use_users_torch(${GAVEL_USERS_TORCH_DIR})
else()
  gavel_use_torch_wheel()
endif()
target_include_directories(gavel::torch SYSTEM INTERFACE ${TORCH_INCLUDES})
target_link_libraries(gavel::torch_cuda INTERFACE gavel::torch)

find_path(GAVEL_GLOO_INCLUDE_DIR gloo/algorithm.h)
find_path(GAVEL_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${TORCH_INCLUDES} ${CUDA_TOOLKIT_ROOT_DIR}/include)
find_path(GAVEL_NCCL_INCLUDE_DIR nccl.h HINTS ${TORCH_INCLUDES} ${CUDA_TOOLKIT_ROOT_DIR}/include)
mark_as_advanced(GAVEL_GLOO_INCLUDE_DIR GAVEL_CUDA_INCLUDE_DIR GAVEL_NCCL_INCLUDE_DIR)

set(GAVEL_HAS_CUDA OFF)
if(EXISTS ${TORCH_LIBRARY_DIR}/libtorch_cuda.so AND GAVEL_CUDA_INCLUDE_DIR)
  set(GAVEL_HAS_CUDA ON)
  target_compile_definitions(gavel::torch INTERFACE GAVEL_HAS_CUDA)
endif()
set(GAVEL_HAS_NCCL OFF)
if(GAVEL_HAS_CUDA AND GAVEL_NCCL_INCLUDE_DIR)
  set(GAVEL_HAS_NCCL ON)
  target_compile_definitions(gavel::torch INTERFACE GAVEL_HAS_NCCL USE_C10D_NCCL)
endif()
if(GAVEL_GLOO_INCLUDE_DIR)
  target_compile_definitions(gavel::torch INTERFACE GAVEL_HAS_GLOO USE_C10D_GLOO)
endif()
message(STATUS "LibTorch: ${TORCH_LIBRARY_DIR} (CUDA ${GAVEL_HAS_CUDA}, NCCL ${GAVEL_HAS_NCCL})")

# .cu files need a compiler of their own; nothing else here needs the toolkit.
set(GAVEL_HAS_NVCC OFF)
if(GAVEL_HAS_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures of our .cu files")
    enable_language(CUDA)
    set(GAVEL_HAS_NVCC ON)
  else()
    message(STATUS "No nvcc: .cu files are left out")
  endif()
endif()
