// Where keys are looked for: the command line, the environment, then
// ~/.config/gavel/ and /etc/gavel/. On a loopback address they are used only
// when they are named, so that `gavel local` needs none.
#ifndef GAVEL_COORDINATOR_CLI_KEYS_H_
#define GAVEL_COORDINATOR_CLI_KEYS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/transport/curve.h"

namespace CLI {
class App;
}

namespace gavel {

// Their names in those directories.
inline constexpr char kCoordinatorKeyFile[] = "coordinator.key";
inline constexpr char kCoordinatorPublicFile[] = "coordinator.pub";
inline constexpr char kClientKeyFile[] = "client.key";
inline constexpr char kNodeKeyFile[] = "node.key";
inline constexpr char kPrincipalsFile[] = "principals.toml";

// Where `gavel keygen` and `gavel user` write: /etc/gavel as root, else
// ~/.config/gavel.
std::string OwnKeyDirectory();
// The first of that name that is there; else where it would be written.
std::string FindKeyFile(const std::string& name);

struct KeyFlags {
  std::string key_file;         // empty: looked for
  std::string coordinator_key;  // public key or its file; empty: looked for
};
// --key and --coordinator-key.
void AddKeyFlags(CLI::App& command, KeyFlags* flags);

// `name`: kClientKeyFile or kNodeKeyFile. Nothing: no keys are needed. Returns
// the errors of ReadKeyFile and ReadPublicKey.
absl::StatusOr<std::optional<CurveClient>> FindClientKeys(
    const std::string& endpoint, const KeyFlags& flags,
    const std::string& name);

// Finds the key pair of a coordinator that listens on `endpoint`. NOT_FOUND:
// keys are needed, and there are none. An empty `key_file` is looked for.
absl::StatusOr<std::optional<CurveKeyPair>> FindCoordinatorKeys(
    const std::string& endpoint, const std::string& key_file);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_KEYS_H_
