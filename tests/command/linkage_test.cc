// `gavel` is light: neither LibTorch nor CUDA is linked, directly or not.
#include <array>
#include <cstdio>

#include "gavel_paths.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(Linkage, GavelLinksNeitherLibTorchNorCuda) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> ldd(
      popen("ldd " GAVEL_BINARY_DIR "/gavel", "r"), pclose);
  ASSERT_NE(ldd, nullptr);
  std::string libraries;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), ldd.get()) != nullptr) {
    // "libzmq.so.5 => /lib/..." by its name: folders may be called anything.
    const std::string line(buffer.data());
    // And without addresses, which may be called anything, too.
    const std::string name = line.substr(0, line.find(" =>"));
    libraries += name.substr(0, name.find(" (")) + "\n";
  }
  EXPECT_THAT(libraries, HasSubstr("libzmq"));  // else ldd told nothing
  for (const char* heavy :
       {"torch", "c10", "cuda", "cudart", "nccl", "nvidia", "mkl", "gomp"}) {
    EXPECT_THAT(libraries, Not(HasSubstr(heavy)));
  }
}

}  // namespace
}  // namespace gavel::testing
