# Third-party packages as imported targets, one library per function. All of Debian's.
# Abseil stays shared: Debian's archives are not position independent, and its versioned inline
# namespace keeps it apart from an Abseil of the host program.

find_package(absl CONFIG REQUIRED)
find_package(cppzmq CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(Threads REQUIRED)

function(gavel_package name header)
  cmake_parse_arguments(arg "" "" "LIBRARIES;DEFINITIONS;PATH_SUFFIXES" ${ARGN})
  find_path(GAVEL_${name}_INCLUDE_DIR ${header} PATH_SUFFIXES ${arg_PATH_SUFFIXES} REQUIRED)
  mark_as_advanced(GAVEL_${name}_INCLUDE_DIR)
  add_library(gavel::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(gavel::${name} SYSTEM INTERFACE ${GAVEL_${name}_INCLUDE_DIR})
  target_compile_definitions(gavel::${name} INTERFACE ${arg_DEFINITIONS})
  foreach(library IN LISTS arg_LIBRARIES)
    find_library(GAVEL_${library}_LIBRARY ${library} REQUIRED)
    mark_as_advanced(GAVEL_${library}_LIBRARY)
    target_link_libraries(gavel::${name} INTERFACE ${GAVEL_${library}_LIBRARY})
  endforeach()
endfunction()

gavel_package(msgpack msgpack.hpp DEFINITIONS MSGPACK_NO_BOOST)
gavel_package(xxhash xxhash.h LIBRARIES xxhash)
# Hashes with a key; libzmq's CURVE is made of it, too.
gavel_package(sodium sodium.h LIBRARIES sodium)
# Its headers must see the options that Debian's library was compiled with.
gavel_package(httplib httplib.h LIBRARIES cpp-httplib DEFINITIONS
              CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT CPPHTTPLIB_BROTLI_SUPPORT)
# Header only and without exceptions: a parse error is a value.
gavel_package(toml toml++/toml.h DEFINITIONS TOML_EXCEPTIONS=0 TOML_HEADER_ONLY=1)

# Header only. Nothing of its own threads: the pure folders have none.
gavel_package(eigen Eigen/Core PATH_SUFFIXES eigen3 DEFINITIONS EIGEN_DONT_PARALLELIZE EIGEN_MPL2_ONLY)
if(GAVEL_WITH_TORCH)
  gavel_package(jpeg turbojpeg.h LIBRARIES turbojpeg)
endif()

add_library(gavel::zmq ALIAS cppzmq)
add_library(gavel::sqlite ALIAS SQLite::SQLite3)
add_library(gavel::json ALIAS nlohmann_json::nlohmann_json)
