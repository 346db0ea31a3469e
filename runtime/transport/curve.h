// Keys of encrypted connections (CURVE, rfc.zeromq.org/spec/26): making them,
// their files, and what a socket is given of them. One key pair for each
// principal: the coordinator, a server, a user, one launch of a worker. Called
// by the command line, the agent and both ends of the wire. Stateless,
// thread-safe.
#ifndef GAVEL_RUNTIME_TRANSPORT_CURVE_H_
#define GAVEL_RUNTIME_TRANSPORT_CURVE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// A key is 32 bytes, written in Z85.
inline constexpr size_t kCurveKeyChars = 40;

// The secret one is never logged, sent, or put on a command line.
struct CurveKeyPair {
  std::string public_key;
  std::string secret_key;
};

// How one end that connects is known, and whom it expects to find.
struct CurveClient {
  CurveKeyPair own;
  std::string server_public_key;
};

// A new pair, of the system's randomness. UNIMPLEMENTED: a libzmq without
// CURVE.
absl::StatusOr<CurveKeyPair> NewCurveKeyPair();

// 40 characters of Z85.
bool IsCurveKey(std::string_view text);

// Writes a new file of mode 0600, on disk when it returns. Nothing is
// overwritten, no link is followed: ALREADY_EXISTS when there is something of
// that name.
absl::Status WriteKeyFile(const std::string& path, const CurveKeyPair& keys);

// Writes the public half alone, for others to read, with mode 0644; replaces an
// existing file.
absl::Status WritePublicKeyFile(const std::string& path,
                                const std::string& public_key);
// A public key, or the path of a file that has one.
absl::StatusOr<std::string> ReadPublicKey(const std::string& key_or_path);

// The text of a key file: lines of "NAME = KEY"; '#' begins a line that is not
// read. Keys that are not there stay empty; they are not checked.
CurveKeyPair ParseKeyFile(std::string_view text);

// NOT_FOUND: no file. PERMISSION_DENIED: others than its owner may read or
// write it, or it is neither this user's nor root's. INVALID_ARGUMENT: no key
// file, or its keys are no pair. Each names the remedy, none the key.
absl::StatusOr<CurveKeyPair> ReadKeyFile(const std::string& path);

// The keys with which a program that the agent started connects: the file that
// GAVEL_KEY_FILE names, and GAVEL_COORDINATOR_KEY; nothing when neither is set.
// Returns the errors of ReadKeyFile; INVALID_ARGUMENT when only one is set.
absl::StatusOr<std::optional<CurveClient>> CurveClientOfEnvironment();

// The result of a handshake with keys. Peers learn which of the last two it is,
// and try again all the same. Peers of earlier versions then do not try again:
// kNotYet is for keys that may be allowed in a moment, such as that of a worker
// that connects before its agent has announced it.
enum class Admission : uint8_t { kAllowed, kNotYet, kRefused, kRevoked };

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_CURVE_H_
