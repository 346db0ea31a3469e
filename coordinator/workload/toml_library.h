// The only way to toml++ here. On malformed text such as "[&" its parser (3.3,
// Debian 12) runs into its own assertions, which would end the process, and
// without them into undefined behaviour (tomlplusplus issue 294). So they are
// always on, whatever NDEBUG says, and throw; ParseToml() catches.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TOML_LIBRARY_H_
#define GAVEL_COORDINATOR_WORKLOAD_TOML_LIBRARY_H_

#include <stdexcept>

namespace gavel {

struct TomlAssertionFailed : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] inline void FailTomlAssertion(const char* expression) {
  throw TomlAssertionFailed(expression);
}

}  // namespace gavel

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expression)            \
  (static_cast<bool>(expression) ? void(0) \
                                 : ::gavel::FailTomlAssertion(#expression))
#include "toml++/toml.h"
#pragma pop_macro("NDEBUG")

#endif  // GAVEL_COORDINATOR_WORKLOAD_TOML_LIBRARY_H_
