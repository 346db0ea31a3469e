# gavel::highs: HiGHS by its C API, #include "interfaces/highs_c_api.h".
# A HiGHS of the system comes first, then the highsbox wheel (whose own CMake files are broken and
# whose C++ ABI is old: hence the C API), then its sources.

include(GavelCache)

find_package(highs CONFIG QUIET)
set(highsbox ${GAVEL_SITE_PACKAGES}/highsbox/highs_dist)
set(GAVEL_HIGHS_FILES)  # what a package of ours must bring along, and its licence
add_library(gavel::highs INTERFACE IMPORTED GLOBAL)
if(highs_FOUND)
  set(gavel_highs_from "${highs_DIR}")
  target_link_libraries(gavel::highs INTERFACE highs::highs)
elseif(EXISTS ${highsbox}/lib/libhighs.so)
  set(gavel_highs_from "${highsbox}")
  set(GAVEL_HIGHS_FILES ${highsbox}/lib/libhighs.so)
  set(GAVEL_HIGHS_LICENCE ${highsbox}/share/doc/HIGHS/LICENSE.txt)
  target_link_libraries(gavel::highs INTERFACE ${GAVEL_HIGHS_FILES})
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
  set(GAVEL_HIGHS_FILES $<TARGET_SONAME_FILE:highs> $<TARGET_FILE:highs>)
  set(GAVEL_HIGHS_LICENCE ${highs_SOURCE_DIR}/LICENSE.txt)
  target_link_libraries(gavel::highs INTERFACE highs)
  # Its headers as system headers: our warnings are not its.
  target_include_directories(gavel::highs SYSTEM INTERFACE ${highs_SOURCE_DIR}/highs
                             ${highs_BINARY_DIR})
endif()
message(STATUS "HiGHS: ${gavel_highs_from}")
