// MACs showing that this coordinator issued a journal position, in any
// incarnation. A peer that shows a later position than the journal has stops
// the coordinator, and a forged one must not. The MAC is a keyed BLAKE2b (RFC
// 7693) of 128 bits, with a key derived from the coordinator's secret key,
// which outlives the journal. The gatekeeper owns one. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_POSITION_PROOFS_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_POSITION_PROOFS_H_

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"

namespace gavel {

class PositionProofs {
 public:
  // `secret_key`: the coordinator's, as in its file. INTERNAL: the library of
  // hashes does not work here.
  static absl::StatusOr<PositionProofs> Make(const std::string& secret_key);

  // Of the position's term and seq.
  PositionProof Of(const JournalPosition& position);
  // Whether the position carries its proof.
  bool Holds(const JournalPosition& position) const;

 private:
  using Key = std::array<unsigned char, 32>;
  explicit PositionProofs(const Key& key) : key_(key) {}
  PositionProof Compute(const JournalPosition& position) const;

  Key key_;
  // Many messages in a row carry the same.
  JournalPosition last_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_POSITION_PROOFS_H_
