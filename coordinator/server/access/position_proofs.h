// Proofs that this coordinator, in whatever life of its, gave a journal
// position out: whoever shows a later one than the journal has stops the
// coordinator, so a position that was made up must not. Made with a key that is
// derived from the coordinator's secret one, which outlives the journal (keyed
// BLAKE2b, RFC 7693, of 128 bits). The gatekeeper owns one. Not thread-safe.
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
