#include "coordinator/server/access/position_proofs.h"

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "sodium.h"

namespace gavel {
namespace {

constexpr std::string_view kPurpose = "gavel journal position 1";

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// The same on every machine.
void Put(uint64_t value, unsigned char* bytes) {
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<unsigned char>(value >> 8 * i);
  }
}

uint64_t Get(const unsigned char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

absl::StatusOr<PositionProofs> PositionProofs::Make(
    const std::string& secret_key) {
  Key key{};
  if (sodium_init() < 0 ||
      crypto_generichash(key.data(), key.size(), Bytes(kPurpose),
                         kPurpose.size(), Bytes(secret_key),
                         secret_key.size()) != 0) {
    return absl::InternalError(
        "libsodium can't make a key for journal positions; is it that of this "
        "system, and the coordinator's key whole?");
  }
  return PositionProofs(key);
}

PositionProof PositionProofs::Compute(const JournalPosition& position) const {
  std::array<unsigned char, 16> text{};
  Put(position.term, text.data());
  Put(position.seq, text.data() + 8);
  std::array<unsigned char, 16> proof{};
  // Fails for lengths out of range only.
  crypto_generichash(proof.data(), proof.size(), text.data(), text.size(),
                     key_.data(), key_.size());
  return {Get(proof.data()), Get(proof.data() + 8)};
}

PositionProof PositionProofs::Of(const JournalPosition& position) {
  if (last_ != position || last_.proof == PositionProof()) {
    last_ = position;
    last_.proof = Compute(position);
  }
  return last_.proof;
}

bool PositionProofs::Holds(const JournalPosition& position) const {
  const PositionProof proof = Compute(position);
  // Takes as long whatever is wrong.
  return ((proof.first ^ position.proof.first) |
          (proof.second ^ position.proof.second)) == 0;
}

}  // namespace gavel
