# Read by cpack before it packs.
find_program(GAVEL_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(NOT GAVEL_DPKG_SHLIBDEPS)
  message(FATAL_ERROR "cpack needs dpkg-shlibdeps to tell what the packages depend on; "
                      "install it: sudo apt-get install dpkg-dev")
endif()
