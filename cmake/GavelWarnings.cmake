# gavel_own_target(<target>): what every target of ours compiles with, and no imported one.

function(gavel_own_target target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    -Woverloaded-virtual -Wold-style-cast -Wimplicit-fallthrough -Werror>)
  # g++ 12 sees overlapping copies in string concatenation where there are none (GCC bug 105651).
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  # Assertions name files as in the repository, so that the compiler cache of one clone serves another.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
  if(GAVEL_UNITY_BUILD)
    # g++ sees a header in a file that is compiled together with others, and warns of its unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  if(GAVEL_SANITIZE)
    # What is found ends the program: a test that prints it and passes is not read.
    target_compile_options(${target} PRIVATE -fsanitize=${GAVEL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
                           $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${GAVEL_SANITIZE})
    get_target_property(type ${target} TYPE)
    if(GAVEL_SANITIZE STREQUAL "thread" AND type STREQUAL "EXECUTABLE")
      target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/tsan_suppressions.cc)
    endif()
  endif()
  target_link_options(${target} PRIVATE LINKER:--as-needed)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
                        CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON
                        UNITY_BUILD ${GAVEL_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 6)
endfunction()
