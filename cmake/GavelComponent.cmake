# The build's vocabulary:
#   gavel_component(NAME n [PURE] [REGISTERS] SOURCES f... [HEADERS f...] [DEPENDS component...] [PACKAGES target...])
#                   REGISTERS: nobody calls it by name; all of it is in whatever names it as a dependency
#   gavel_shared_library(NAME n OF component...)    lib<n>.so of the components, all they use hidden inside
#   gavel_program(NAME n SOURCES f... [DEPENDS component...] [PACKAGES target...])
#   gavel_test(NAME n SOURCES f... [DEPENDS component...] [PACKAGES target...] [LABELS l...] [TIMEOUT s]
#              [NIGHTLY Suite.Case...]                Cases that only `gavel-dev test --nightly` runs
#              [SIMULATED])                           Also as n_simulated, on the simulated accelerator, and n_gpu
#   gavel_accelerator_test(NAME n SOURCES f... [DEPENDS component...] [PACKAGES target...] [TIMEOUT s])
#                                                   n_simulated_test and, labelled gpu, n_gpu_test
#   gavel_command_test(NAME n SOURCES f... [DEPENDS component...] [NEEDS target...] [NIGHTLY Suite.Case...] [TIMEOUT s])
#   gavel_bench(NAME n LIMIT s SOURCES f... [DEPENDS component...] [PACKAGES target...] [FULL arg...] [GPU]
#               [ACCELERATOR])                        Also as bench_n_gpu and bench_n_simulated; see bench/gpu.py
# dependencies.txt says which component may use which; gavel_component refuses anything else.

include(GavelWarnings)

set(gavel_table_file ${CMAKE_CURRENT_LIST_DIR}/dependencies.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${gavel_table_file})

# Reads the table into gavel_kind_<name>, gavel_uses_<name>, gavel_packages_<name>.
file(STRINGS ${gavel_table_file} gavel_rows REGEX "^[^#]")
foreach(row IN LISTS gavel_rows)
  string(REGEX REPLACE " +" ";" row "${row}")
  list(GET row 0 folder)
  get_filename_component(name ${folder} NAME)
  list(APPEND gavel_component_names ${name})
  list(GET row 1 gavel_kind_${name})
  list(GET row 2 uses)
  list(GET row 3 packages)
  string(REPLACE "," ";" gavel_uses_${name} "${uses}")
  string(REPLACE "," ";" gavel_packages_${name} "${packages}")
endforeach()
# What tests share may use everything.
list(APPEND gavel_component_names test_support)
set(gavel_kind_test_support io)
set(gavel_uses_test_support ${gavel_component_names})

# The word in the table's packages column for an imported target, or nothing: free to use.
function(gavel_restricted_package target result)
  set(words torch_cuda=cuda torch=torch zmq=zmq sqlite=sqlite SQLite3=sqlite spdlog=spdlog CLI11=cli
            httplib=http jpeg=jpeg)
  set(${result} "" PARENT_SCOPE)
  foreach(pair IN LISTS words)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 pattern)
    list(GET pair 1 word)
    if(target MATCHES "${pattern}")
      set(${result} ${word} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(gavel_check_component name pure depends packages)
  if(NOT name IN_LIST gavel_component_names)
    message(FATAL_ERROR "Component ${name} has no row in ${gavel_table_file}; add one.")
  endif()
  if(name STREQUAL "test_support")
    return()
  endif()
  if(pure AND NOT gavel_kind_${name} STREQUAL "pure")
    message(FATAL_ERROR "Component ${name} is declared PURE, its row in dependencies.txt says io.")
  elseif(NOT pure AND gavel_kind_${name} STREQUAL "pure")
    message(FATAL_ERROR "Component ${name} is pure by its row in dependencies.txt; declare it PURE.")
  endif()
  foreach(dependency IN LISTS depends)
    if(NOT dependency IN_LIST gavel_uses_${name})
      message(FATAL_ERROR "Component ${name} may not depend on ${dependency}; its row in "
                          "dependencies.txt allows: ${gavel_uses_${name}}.")
    elseif(pure AND NOT gavel_kind_${dependency} STREQUAL "pure")
      message(FATAL_ERROR "Pure component ${name} may not depend on ${dependency}, which does I/O.")
    endif()
  endforeach()
  foreach(package IN LISTS packages)
    gavel_restricted_package(${package} word)
    if(word AND NOT word IN_LIST gavel_packages_${name})
      message(FATAL_ERROR "Component ${name} may not use ${package}; its row in dependencies.txt "
                          "allows the packages: ${gavel_packages_${name}}.")
    endif()
  endforeach()
endfunction()

function(gavel_component)
  cmake_parse_arguments(arg "PURE;REGISTERS" "NAME" "SOURCES;HEADERS;DEPENDS;PACKAGES" ${ARGN})
  gavel_check_component(${arg_NAME} ${arg_PURE} "${arg_DEPENDS}" "${arg_PACKAGES}")
  set(target gavel_${arg_NAME})
  list(TRANSFORM arg_DEPENDS PREPEND gavel_)
  # Headers of these are in no header that is installed: their users need not have them.
  set(packages ${arg_PACKAGES})
  list(TRANSFORM packages REPLACE "^gavel::(json|toml|msgpack|eigen)$" "$<BUILD_INTERFACE:gavel::\\1>")
  if(arg_SOURCES)
    set(kind STATIC)
    if(arg_REGISTERS)
      set(kind OBJECT)
    endif()
    add_library(${target} ${kind} ${arg_SOURCES} ${arg_HEADERS})
    gavel_own_target(${target})
    target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${packages})
  else()
    add_library(${target} INTERFACE ${arg_HEADERS})
    target_link_libraries(${target} INTERFACE ${arg_DEPENDS} ${packages})
  endif()
  if(arg_PURE AND arg_SOURCES)
    add_dependencies(gavel_pure ${target})
  endif()
  if(arg_PURE AND arg_SOURCES AND GAVEL_BUILD_TESTS)
    add_test(NAME tidy_pure_${arg_NAME}
             COMMAND ${PROJECT_SOURCE_DIR}/cmake/check-pure-archive $<TARGET_FILE:${target}>)
    set_tests_properties(tidy_pure_${arg_NAME} PROPERTIES LABELS tidy)
  endif()
endfunction()

function(gavel_shared_library)
  cmake_parse_arguments(arg "" "NAME" "OF" ${ARGN})
  add_library(${arg_NAME} SHARED)
  gavel_own_target(${arg_NAME})
  set_target_properties(${arg_NAME} PROPERTIES LINKER_LANGUAGE CXX)
  foreach(component IN LISTS arg_OF)
    get_target_property(kind gavel_${component} TYPE)
    if(kind STREQUAL "STATIC_LIBRARY")  # the objects of the others come by linking
      target_sources(${arg_NAME} PRIVATE $<TARGET_OBJECTS:gavel_${component}>)
    endif()
    target_link_libraries(${arg_NAME} PRIVATE gavel_${component})
  endforeach()
  target_link_options(${arg_NAME} PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,defs)
endfunction()

# True when every component in `depends` is built here; a name without a row in the table is an error.
function(gavel_are_built depends result)
  set(${result} TRUE PARENT_SCOPE)
  foreach(dependency IN LISTS depends)
    if(NOT dependency IN_LIST gavel_component_names)
      message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}: there is no component ${dependency}.")
    elseif(NOT TARGET gavel_${dependency})
      set(${result} FALSE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# An executable in build/bin[/subfolder]; left out when a component it needs is not built.
function(gavel_executable target subfolder sources depends packages)
  gavel_are_built("${depends}" built)
  if(NOT built)
    message(STATUS "${target} is left out: a component it needs is not built")
    return()
  endif()
  # What many tests share is compiled alone: the compiler cache then serves all but the first.
  foreach(source IN LISTS sources)
    if(source MATCHES "support/")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  add_executable(${target} ${sources})
  gavel_own_target(${target})
  list(TRANSFORM depends PREPEND gavel_)
  target_link_libraries(${target} PRIVATE ${depends} ${packages})
  set_target_properties(${target} PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${subfolder})
endfunction()

function(gavel_program)
  cmake_parse_arguments(arg "" "NAME" "SOURCES;DEPENDS;PACKAGES" ${ARGN})
  gavel_executable(${arg_NAME} "." "${arg_SOURCES}" "${arg_DEPENDS}" "${arg_PACKAGES}")
endfunction()

# gavel_paths.h, which tests and benchmarks include: a header, since a definition for all of them would keep the
# compiler cache of one clone from serving another.
set(gavel_paths_folder ${PROJECT_BINARY_DIR}/paths)
if(EXISTS "${GAVEL_REFERENCE_DIR}")
  set(gavel_has_reference TRUE)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/gavel_paths.h.in ${gavel_paths_folder}/gavel_paths.h)

# What `gavel-dev test FOLDER` builds: tests_<folder>, of the folder of tests/ that this is called in.
function(gavel_add_to_folder target)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT TARGET tests_${folder})
    add_custom_target(tests_${folder})
  endif()
  add_dependencies(tests_${folder} ${target})
endfunction()

# LibTorch's flight recorder is off: two process groups of one process that begin collectives at once break its map,
# which it changes without a lock. Tests run the ranks of a gang as threads.
set(gavel_test_environment "OMP_WAIT_POLICY=PASSIVE;TORCH_FR_BUFFER_SIZE=0")
set(gavel_simulated_environment
    "${gavel_test_environment};GAVEL_TEST_DEVICE=hpu;GAVEL_SIMULATED_DEVICE=devices=4,memory_mib=256")

# NAME_gpu: the objects of the test NAME with CUDA, as a program of its own, since loading CUDA takes seconds.
function(gavel_test_on_gpu name timeout depends packages)
  gavel_executable(${name}_gpu tests "$<TARGET_OBJECTS:${name}>;${PROJECT_SOURCE_DIR}/tests/support/needs_device.cc"
                   "${depends};cuda" "${packages};GTest::gmock;GTest::gtest_main")
  if(TARGET ${name}_gpu)
    gavel_add_to_folder(${name}_gpu)
    add_test(NAME ${name}_gpu COMMAND ${name}_gpu --gtest_brief=1)
    set_tests_properties(${name}_gpu PROPERTIES LABELS gpu TIMEOUT ${timeout}
                         ENVIRONMENT "${gavel_test_environment};GAVEL_TEST_DEVICE=cuda")
  endif()
endfunction()

function(gavel_test)
  cmake_parse_arguments(arg "SIMULATED" "NAME;TIMEOUT" "SOURCES;DEPENDS;PACKAGES;LABELS;NIGHTLY" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(GAVEL_SANITIZE)
    math(EXPR arg_TIMEOUT "10 * ${arg_TIMEOUT}")
  endif()
  gavel_executable(${arg_NAME} tests "${arg_SOURCES}" "${arg_DEPENDS}"
                   "${arg_PACKAGES};GTest::gmock;GTest::gtest_main")
  if(NOT TARGET ${arg_NAME})
    return()
  endif()
  if(arg_SIMULATED)
    target_link_libraries(${arg_NAME} PRIVATE gavel_simulated_device)
  endif()
  # Compiled in little more than half the time; what takes long at run time is in libraries.
  target_compile_options(${arg_NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_include_directories(${arg_NAME} PRIVATE ${gavel_paths_folder})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  gavel_add_to_folder(${arg_NAME})
  list(APPEND arg_LABELS ${folder})
  list(REMOVE_DUPLICATES arg_LABELS)
  set(tests ${arg_NAME})
  list(JOIN arg_NIGHTLY ":" long)
  set(run ${arg_NAME} --gtest_brief=1)
  set(run_short ${run})
  if(long)
    list(APPEND run_short --gtest_filter=-${long})
    add_test(NAME ${arg_NAME}_nightly COMMAND ${run} --gtest_filter=${long})
    list(APPEND tests ${arg_NAME}_nightly)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${run_short})
  if(arg_SIMULATED)
    add_test(NAME ${arg_NAME}_simulated COMMAND ${run_short})
    list(APPEND tests ${arg_NAME}_simulated)
  endif()
  set_tests_properties(${tests} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
                       ENVIRONMENT "${gavel_test_environment}")
  if(arg_SIMULATED)
    set_tests_properties(${arg_NAME}_simulated PROPERTIES ENVIRONMENT "${gavel_simulated_environment}")
    if(NOT process IN_LIST arg_LABELS)  # whose workers are other programs
      gavel_test_on_gpu(${arg_NAME} ${arg_TIMEOUT} "${arg_DEPENDS}" "${arg_PACKAGES}")
    endif()
  endif()
  if(long)
    set_property(TEST ${arg_NAME}_nightly APPEND PROPERTY LABELS nightly)
  endif()
endfunction()

# Built twice, with the simulated accelerator and with CUDA; see tests/support/accelerator_test.h.
function(gavel_accelerator_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT" "SOURCES;DEPENDS;PACKAGES" ${ARGN})
  foreach(kind simulated gpu)
    set(name ${arg_NAME}_${kind}_test)
    set(depends ${arg_DEPENDS})
    set(packages ${arg_PACKAGES})
    set(environment "${gavel_simulated_environment}")
    set(labels)
    if(kind STREQUAL "gpu")
      list(APPEND depends cuda)
      set(environment "${gavel_test_environment};GAVEL_TEST_DEVICE=cuda")
      set(labels gpu)
    else()
      list(APPEND packages gavel_simulated_device)
    endif()
    gavel_test(NAME ${name} SOURCES ${arg_SOURCES} DEPENDS ${depends} PACKAGES ${packages} LABELS ${labels}
               TIMEOUT ${arg_TIMEOUT})
    if(TARGET ${name})
      set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}")
    endif()
  endforeach()
endfunction()

# A test that starts the installed command: with the fixture for it, and built after `gavel` and NEEDS.
function(gavel_command_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT" "SOURCES;DEPENDS;NEEDS;NIGHTLY" ${ARGN})
  set(support ${PROJECT_SOURCE_DIR}/tests/support)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  gavel_test(NAME ${arg_NAME}
    SOURCES ${arg_SOURCES} ${support}/gavel_fixture.cc ${support}/process.cc ${support}/team_keys.cc
    DEPENDS core agent_host ${arg_DEPENDS}
    PACKAGES gavel::json
    NIGHTLY ${arg_NIGHTLY}
    TIMEOUT ${arg_TIMEOUT})
  foreach(needed IN ITEMS gavel LISTS arg_NEEDS)
    if(TARGET ${arg_NAME} AND TARGET ${needed})
      add_dependencies(${arg_NAME} ${needed})
    endif()
  endforeach()
endfunction()

# Builds bench_<name>; `gavel-dev bench <name>` runs it as `bench_<name> --out FILE.json`. It ends itself after LIMIT
# seconds. The nightly tests run it in full (FULL: with these arguments), unless it is for a GPU. They fail where it does
# not end or gives a wrong answer, and call it skipped where it misses a goal.
function(gavel_bench)
  cmake_parse_arguments(arg "ACCELERATOR;GPU" "NAME;LIMIT" "SOURCES;DEPENDS;PACKAGES;FULL" ${ARGN})
  if(NOT arg_LIMIT)
    message(FATAL_ERROR "bench_${arg_NAME} needs a LIMIT: the seconds after which it has gone wrong")
  endif()
  set(name bench_${arg_NAME})
  gavel_executable(${name} "." "${arg_SOURCES};program.cc;table.cc" "${arg_DEPENDS}" "${arg_PACKAGES};gavel::json")
  if(TARGET ${name})
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
    target_include_directories(${name} PRIVATE ${gavel_paths_folder})
    target_compile_definitions(${name} PRIVATE GAVEL_BENCH_LIMIT_S=${arg_LIMIT})
  endif()
  if(TARGET ${name} AND NOT arg_GPU AND NOT GAVEL_SANITIZE)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    add_test(NAME ${name} COMMAND ${name} ${arg_FULL} --out ${CMAKE_BINARY_DIR}/bench/${arg_NAME}.json)
    math(EXPR limit "${arg_LIMIT} + 60")
    set_tests_properties(${name} PROPERTIES LABELS "bench;nightly" TIMEOUT ${limit} RUN_SERIAL ON SKIP_RETURN_CODE 1)
  endif()
  if(TARGET ${name} AND arg_ACCELERATOR)
    gavel_executable(${name}_gpu "." "$<TARGET_OBJECTS:${name}>" "${arg_DEPENDS};cuda" "${arg_PACKAGES}")
    gavel_executable(${name}_simulated "tests" "$<TARGET_OBJECTS:${name}>" "${arg_DEPENDS}"
                     "${arg_PACKAGES};gavel_simulated_device")
  endif()
endfunction()
