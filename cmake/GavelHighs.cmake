# gavel::highs: HiGHS by its C API, #include "interfaces/highs_c_api.h".
# A HiGHS of the system comes first, then the highsbox wheel (whose own CMake files are broken and
# whose C++ ABI is old: hence the C API), then its sources.

include(GavelCache)

find_package(highs CONFIG QUIET)
set(highsbox ${GAVEL_SITE_PACKAGES}/highsbox/highs_dist)
if(highs_FOUND)
  set(gavel_highs_from "${highs_DIR}")
  add_library(gavel::highs ALIAS highs::highs)
elseif(EXISTS ${highsbox}/lib/libhighs.so)
  set(gavel_highs_from "${highsbox}")
  add_library(gavel::highs SHARED IMPORTED GLOBAL)
  set_target_properties(gavel::highs PROPERTIES IMPORTED_LOCATION ${highsbox}/lib/libhighs.so)
  target_include_directories(gavel::highs SYSTEM INTERFACE ${highsbox}/include/highs)
else()
  set(gavel_highs_from "its sources")
  message(STATUS "No HiGHS here: fetching its sources (./gavel-dev setup installs a binary instead)")
  string(REPLACE "highsbox==" "v" gavel_highs_tag "${gavel_highs_pin}")
  include(FetchContent)
  set(BUILD_TESTING OFF)
  FetchContent_Declare(highs GIT_REPOSITORY https://github.com/ERGO-Code/HiGHS.git
                             GIT_TAG ${gavel_highs_tag} GIT_SHALLOW ON)
  FetchContent_MakeAvailable(highs)
  add_library(gavel_highs INTERFACE)
  target_link_libraries(gavel_highs INTERFACE highs)
  # Its headers as system headers: our warnings are not its.
  target_include_directories(gavel_highs SYSTEM INTERFACE ${highs_SOURCE_DIR}/highs
                             ${highs_BINARY_DIR})
  add_library(gavel::highs ALIAS gavel_highs)
endif()
message(STATUS "HiGHS: ${gavel_highs_from}")
