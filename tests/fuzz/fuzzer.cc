// libFuzzer's entry. One program for all targets: GAVEL_FUZZ_TARGET names the
// one of this run (run_fuzzer sets it).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace {

const gavel::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* name = std::getenv("GAVEL_FUZZ_TARGET");
  for (const gavel::fuzz::Target& target : gavel::fuzz::Targets()) {
    if (name != nullptr && target.name == name) chosen = &target;
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "GAVEL_FUZZ_TARGET names no target of targets.cc\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
