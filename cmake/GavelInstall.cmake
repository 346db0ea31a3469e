# What `cmake --install` puts where, and the Debian packages that `cpack` makes of it:
#   command      gavel              bin/gavel with its manual, completions, documents and examples,
#                                   and HiGHS beside it where the system has none
#   development  gavel-runtime-dev  libgavel_runtime.so with its headers, gavel::engine, CMake and
#                                   pkg-config files
#   debug        gavel-dbg          debug symbols of gavel and libgavel_runtime.so, in .debug/ beside
#                                   them, where gdb looks; not installed unless it is named
# No installed file has a path of this machine in its RUNPATH (tests/install looks).

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(gavel_private_dir ${CMAKE_INSTALL_LIBDIR}/gavel)
set(gavel_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gavel)
set(gavel_engine_components engine ${gavel_uses_engine})  # by dependencies.txt

function(gavel_install_licences component package)
  install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
          COMPONENT ${component})
endfunction()

# Strips the installed file of `target`. Its debug symbols become a file of their own, which it names.
function(gavel_install_stripped target destination component)
  set(symbols "${CMAKE_BINARY_DIR}/debug/$<TARGET_FILE_NAME:${target}>.debug")
  set(split "file(MAKE_DIRECTORY \"${CMAKE_BINARY_DIR}/debug\")
    execute_process(COMMAND \"${CMAKE_OBJCOPY}\" --only-keep-debug --compress-debug-sections=zlib
                    \"$<TARGET_FILE:${target}>\" \"${symbols}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(CODE "${split}
    execute_process(COMMAND \"${CMAKE_OBJCOPY}\" --strip-unneeded \"--add-gnu-debuglink=${symbols}\"
                    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${destination}/$<TARGET_FILE_NAME:${target}>\"
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
  install(CODE "${split}
    file(INSTALL \"${symbols}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${destination}/.debug\")"
          COMPONENT debug EXCLUDE_FROM_ALL)
endfunction()

function(gavel_install_command)
  file(RELATIVE_PATH from_bin /${CMAKE_INSTALL_BINDIR} /${gavel_private_dir})
  if(GAVEL_HIGHS_FILES)
    set_target_properties(gavel PROPERTIES INSTALL_RPATH "$ORIGIN/${from_bin}")
    install(FILES ${GAVEL_HIGHS_FILES} DESTINATION ${gavel_private_dir} COMPONENT command)
    install(FILES ${GAVEL_HIGHS_LICENCE} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gavel
            RENAME LICENSE.HiGHS COMPONENT command)
  endif()
  install(TARGETS gavel RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  gavel_install_stripped(gavel ${CMAKE_INSTALL_BINDIR} command)
  gavel_install_licences(command gavel)
  gavel_install_command_pages()
  gavel_install_units()
endfunction()

# Manual pages, by help2man; completions, which the program wrote when it was linked; documents, examples.
function(gavel_install_command_pages)
  find_program(GAVEL_HELP2MAN help2man)
  if(GAVEL_HELP2MAN)
    install(CODE "execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND
                    ${CMAKE_SOURCE_DIR}/cmake/man_pages $<TARGET_FILE:gavel> ${CMAKE_BINARY_DIR}/share/man1)"
            COMPONENT command)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/share/man1 DESTINATION ${CMAKE_INSTALL_MANDIR}
            COMPONENT command)
  else()
    message(STATUS "No manual pages are installed: help2man is missing")
  endif()
  install(FILES ${CMAKE_BINARY_DIR}/share/completion/gavel
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
  install(FILES ${CMAKE_BINARY_DIR}/share/completion/_gavel
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT command)
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gavel COMPONENT command
          FILES_MATCHING PATTERN "*.md" PATTERN "*.schema.json" PATTERN decisions EXCLUDE
          PATTERN measurements EXCLUDE)
  install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gavel/examples
          COMPONENT command FILES_MATCHING PATTERN "*.toml" PATTERN "*.json" PATTERN "*.md")
endfunction()

# Of systemd: docs/daemons.md.
function(gavel_install_units)
  set(units ${CMAKE_SOURCE_DIR}/cmake/systemd)
  install(FILES ${units}/gavel-coordinator.service ${units}/gavel-agent.service
          DESTINATION lib/systemd/system COMPONENT command)
  install(FILES ${units}/gavel-sysusers.conf DESTINATION lib/sysusers.d RENAME gavel.conf
          COMPONENT command)
  install(FILES ${units}/coordinator.toml ${units}/agent.toml
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gavel/examples COMPONENT command)
endfunction()

# gavel::engine and what it uses, as static archives; torch-free.
function(gavel_install_engine)
  foreach(name IN LISTS gavel_engine_components)
    set_target_properties(gavel_${name} PROPERTIES EXPORT_NAME ${name})
    target_compile_features(gavel_${name} PUBLIC cxx_std_20)
    install(TARGETS gavel_${name} EXPORT gavelEngineTargets
            ARCHIVE DESTINATION ${gavel_private_dir} COMPONENT development
            INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gavel-engine)
    install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${gavel_private_dir}/$<TARGET_FILE_NAME:gavel_${name}>\"
      COMMAND_ERROR_IS_FATAL ANY)" COMPONENT development)
    get_target_property(folder gavel_${name} SOURCE_DIR)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gavel-engine/${folder}
            COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "toml_*.h" EXCLUDE
            PATTERN "json_*.h" EXCLUDE)
  endforeach()
  install(EXPORT gavelEngineTargets NAMESPACE gavel:: DESTINATION ${gavel_config_dir}
          COMPONENT development)
endfunction()

function(gavel_install_runtime)
  install(TARGETS gavel_runtime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT development NAMELINK_COMPONENT development)
  gavel_install_stripped(gavel_runtime ${CMAKE_INSTALL_LIBDIR} development)
  install(DIRECTORY iterator/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          COMPONENT development FILES_MATCHING PATTERN "*.h")
  file(RELATIVE_PATH pkgconfig_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
  install(FILES examples/minimal.cc COMPONENT development
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gavel-runtime-dev/examples)
  configure_file(cmake/gavel-runtime.pc.in ${CMAKE_BINARY_DIR}/gavel-runtime.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/gavel-runtime.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()

function(gavel_install_config)
  set(highs_library)
  if(GAVEL_HIGHS_FILES)
    set(highs_library ${gavel_private_dir}/libhighs.so)
  endif()
  set(runtime_library)
  if(TARGET gavel_runtime)
    set(runtime_library ${CMAKE_INSTALL_LIBDIR}/$<TARGET_SONAME_FILE_NAME:gavel_runtime>)
  endif()
  configure_package_config_file(cmake/gavelConfig.cmake.in ${CMAKE_BINARY_DIR}/gavelConfig.cmake.in
                                INSTALL_DESTINATION ${gavel_config_dir})
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/gavelConfig.cmake
       INPUT ${CMAKE_BINARY_DIR}/gavelConfig.cmake.in)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/gavelConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/gavelConfig.cmake ${CMAKE_BINARY_DIR}/gavelConfigVersion.cmake
          cmake/GavelTorchTargets.cmake DESTINATION ${gavel_config_dir} COMPONENT development)
  gavel_install_licences(development gavel-runtime-dev)
endfunction()

gavel_install_command()
gavel_install_engine()
if(TARGET gavel_runtime)
  gavel_install_runtime()
endif()
gavel_install_config()

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # packing does not build what is not packed
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL command development debug)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES OFF)  # gavel_install_stripped does
set(CPACK_PACKAGE_CONTACT "The authors of Gavel for C++ <gavel@localhost>")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Without dpkg-shlibdeps CPack would go on, and make packages that depend on nothing.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/GavelPacking.cmake)
# LibTorch is the user's own, and HiGHS comes along: neither is a package to depend on.
file(GLOB gavel_nvidia_dirs ${gavel_torch_root}/../nvidia/*/lib)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TORCH_LIBRARY_DIR} ${gavel_nvidia_dirs})
foreach(file IN LISTS GAVEL_HIGHS_FILES)
  get_filename_component(folder "${file}" DIRECTORY)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${folder})
endforeach()
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME gavel)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS python3)  # runs gavel_checkpoint.py
set(CPACK_DEBIAN_COMMAND_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/systemd/postinst)
set(CPACK_COMPONENT_COMMAND_DESCRIPTION
    "Scheduler of training jobs on shared accelerators\n\
 Coordinator, agent, clients and simulator of Gavel for C++ as one command, gavel.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME gavel-runtime-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# gavel::engine uses Abseil's headers, and the HiGHS of the command's package.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "gavel (= ${PROJECT_VERSION}), libabsl-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "Runtime for LibTorch programs scheduled by Gavel, and its engine\n\
 libgavel_runtime.so with its headers, for a LibTorch ${GAVEL_TORCH_VERSION} of your own\n\
 (find_package(gavel) refuses others), and gavel::engine for studies of policies.")
set(CPACK_DEBIAN_DEBUG_PACKAGE_NAME gavel-dbg)
set(CPACK_DEBIAN_DEBUG_PACKAGE_SECTION debug)
set(CPACK_DEBIAN_DEBUG_PACKAGE_DEPENDS "gavel (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEBUG_PACKAGE_SHLIBDEPS OFF)
set(CPACK_COMPONENT_DEBUG_DESCRIPTION
    "Debug symbols of gavel and libgavel_runtime.so\n\
 Stack traces of gdb then name functions and lines.")
include(CPack)
