#include "coordinator/http/tokens.h"

#include <algorithm>

#include "sodium.h"

namespace gavel {

DashboardTokens::Hash DashboardTokens::HashOf(std::string_view token) {
  Hash hash{};
  crypto_generichash(hash.data(), hash.size(),
                     reinterpret_cast<const unsigned char*>(token.data()),
                     token.size(), nullptr, 0);
  return hash;
}

std::string DashboardTokens::Make(Time now, const std::string& public_key) {
  std::array<unsigned char, 32> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  std::string token(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(token.data(), token.size(), bytes.data(), bytes.size());
  token.pop_back();

  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& one) { return one.until <= now; });
  const auto of_key = [&](const Entry& one) {
    return one.public_key == public_key;
  };
  if (static_cast<size_t>(std::ranges::count_if(entries_, of_key)) >=
      kTokensOfOneKeyMax) {
    entries_.erase(std::ranges::find_if(entries_, of_key));
  }
  if (entries_.size() >= kTokensMax) entries_.erase(entries_.begin());
  entries_.push_back({HashOf(token), public_key, now + kValid_s});
  return token;
}

std::optional<std::string> DashboardTokens::Find(Time now,
                                                 std::string_view token) const {
  const Hash hash = HashOf(token);
  const std::lock_guard lock(mutex_);
  const Entry* found = nullptr;
  for (const Entry& one : entries_) {
    const bool same =
        sodium_memcmp(one.hash.data(), hash.data(), hash.size()) == 0;
    if (same) found = &one;
  }
  if (found == nullptr || found->until <= now) return std::nullopt;
  return found->public_key;
}

}  // namespace gavel
