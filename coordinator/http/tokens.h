// The tokens by which browsers act in the name of a principal.
#ifndef GAVEL_COORDINATOR_HTTP_TOKENS_H_
#define GAVEL_COORDINATOR_HTTP_TOKENS_H_

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.h"

namespace gavel {

// Random tokens of 256 bits, each for the key of the principal that asked for
// it. An action by a token is authorised as a request of that key, so it may do
// no more than the principal, and nothing once the principal is removed. Only
// hashes are kept. Thread-safe. `now` never falls.
class DashboardTokens {
 public:
  static constexpr double kValid_s = 12 * 3600;
  // Beyond, the oldest are forgotten: those of the same key first.
  static constexpr size_t kTokensMax = 1024;
  static constexpr size_t kTokensOfOneKeyMax = 16;

  // A new token: 64 hexadecimal digits.
  std::string Make(Time now, const std::string& public_key);
  // The key of a token that is valid. Takes as long whichever token it is.
  std::optional<std::string> Find(Time now, std::string_view token) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Entry {
    Hash hash;
    std::string public_key;
    Time until = 0;
  };
  static Hash HashOf(std::string_view token);

  mutable std::mutex mutex_;    // guards the next
  std::vector<Entry> entries_;  // the oldest first
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_TOKENS_H_
