# The LibTorch that this build uses, as gavel::torch and gavel::torch_cuda (GavelTorchTargets.cmake).
# Both define GAVEL_HAS_CUDA, GAVEL_HAS_NCCL, GAVEL_HAS_GLOO when LibTorch and its headers have them.
#
# A LibTorch of the user (CMAKE_PREFIX_PATH or Torch_DIR, CPU-only too) comes first, then the wheel
# that `gavel-dev setup` installs. The wheel's own CMake files demand a CUDA toolkit, hence ours.

include(GavelCache)
include(GavelTorchTargets)

set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know CUDA20

find_path(GAVEL_USERS_TORCH_DIR TorchConfig.cmake PATHS ${Torch_DIR} ${CMAKE_PREFIX_PATH}
          PATH_SUFFIXES share/cmake/Torch lib/cmake/Torch NO_DEFAULT_PATH)
if(GAVEL_USERS_TORCH_DIR)
  gavel_find_torch(${GAVEL_USERS_TORCH_DIR})
elseif(EXISTS ${GAVEL_SITE_PACKAGES}/torch/lib/libtorch_cpu.so)
  gavel_import_torch(${GAVEL_SITE_PACKAGES}/torch)
else()
  message(FATAL_ERROR "No LibTorch: none in CMAKE_PREFIX_PATH, and no wheel in ${GAVEL_CACHE_DIR}. "
                      "Run ./gavel-dev setup, give -DCMAKE_PREFIX_PATH=<libtorch>, "
                      "or build without it: -DGAVEL_WITH_TORCH=OFF.")
endif()
get_filename_component(gavel_torch_root ${TORCH_LIBRARY_DIR} DIRECTORY)
gavel_describe_torch(${gavel_torch_root})

find_path(GAVEL_GLOO_INCLUDE_DIR gloo/algorithm.h)
find_path(GAVEL_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${TORCH_INCLUDES} ${CUDA_TOOLKIT_ROOT_DIR}/include)
find_path(GAVEL_NCCL_INCLUDE_DIR nccl.h HINTS ${TORCH_INCLUDES} ${CUDA_TOOLKIT_ROOT_DIR}/include)
mark_as_advanced(GAVEL_GLOO_INCLUDE_DIR GAVEL_CUDA_INCLUDE_DIR GAVEL_NCCL_INCLUDE_DIR)

set(GAVEL_HAS_CUDA OFF)
if(GAVEL_TORCH_CUDA AND GAVEL_CUDA_INCLUDE_DIR)
  set(GAVEL_HAS_CUDA ON)
  target_compile_definitions(gavel::torch INTERFACE GAVEL_HAS_CUDA)
endif()
set(GAVEL_HAS_NCCL OFF)
if(GAVEL_HAS_CUDA AND GAVEL_NCCL_INCLUDE_DIR)
  set(GAVEL_HAS_NCCL ON)
  target_compile_definitions(gavel::torch INTERFACE GAVEL_HAS_NCCL)
endif()
if(GAVEL_GLOO_INCLUDE_DIR)
  target_compile_definitions(gavel::torch INTERFACE GAVEL_HAS_GLOO USE_C10D_GLOO)
endif()
message(STATUS "LibTorch: ${GAVEL_TORCH_VERSION} in ${TORCH_LIBRARY_DIR} (CUDA ${GAVEL_HAS_CUDA}, NCCL ${GAVEL_HAS_NCCL})")

# .cu files need a compiler of their own; nothing else here needs the toolkit.
set(GAVEL_HAS_NVCC OFF)
if(GAVEL_HAS_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures of our .cu files")
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # LibTorch's, of gavel::torch_cuda
    enable_language(CUDA)
    set(GAVEL_HAS_NVCC ON)
  else()
    message(STATUS "No nvcc: .cu files are left out")
  endif()
endif()
