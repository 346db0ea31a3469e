# cmake -D SOURCE_DIR=... -D OUT=... -P WriteCommit.cmake
# Writes `gavel::CommitName()`, of the tree that is being built. OUT is touched
# only when that changes.
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
#include "tests/simulation/seed_runs.h"

namespace gavel {

std::string CommitName() { return "@commit@"; }

}  // namespace gavel
]])
