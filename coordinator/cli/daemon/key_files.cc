#include "coordinator/cli/daemon/key_files.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "coordinator/cli/command_options.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/dealer.h"

namespace gavel {
namespace {

constexpr char kSystemDirectory[] = "/etc/gavel";

std::string HomeDirectory() {
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home != '/' ? "" : StrCat(home, "/.config/gavel");
}

}  // namespace

std::string OwnKeyDirectory() {
  const std::string home = HomeDirectory();
  return geteuid() == 0 || home.empty() ? kSystemDirectory : home;
}

std::string FindKeyFile(const std::string& name) {
  for (const std::string& directory :
       {HomeDirectory(), std::string(kSystemDirectory)}) {
    const std::string path = StrCat(directory, "/", name);
    std::error_code ignored;
    if (!directory.empty() && std::filesystem::exists(path, ignored)) {
      return path;
    }
  }
  return StrCat(OwnKeyDirectory(), "/", name);
}

void AddKeyFlags(CLI::App& command, KeyFlags* flags) {
  AddOption(command, "--key", flags->key_file, "FILE",
            "file of the key to connect with; beyond this machine looked for "
            "in ~/.config/gavel and /etc/gavel")
      ->envname("GAVEL_KEY_FILE");
  AddOption(command, "--coordinator-key", flags->coordinator_key, "KEY",
            "the coordinator's public key, or its file; looked for likewise, "
            "as coordinator.pub")
      ->envname("GAVEL_COORDINATOR_KEY");
}

absl::StatusOr<std::optional<CurveClient>> FindClientKeys(
    const std::string& endpoint, const KeyFlags& flags,
    const std::string& name) {
  GAVEL_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  if (flags.key_file.empty() && IsLoopback(endpoint)) return std::nullopt;
  CurveClient client;
  GAVEL_ASSIGN_OR_RETURN(
      client.own,
      ReadKeyFile(flags.key_file.empty() ? FindKeyFile(name) : flags.key_file));
  GAVEL_ASSIGN_OR_RETURN(client.server_public_key,
                         ReadPublicKey(flags.coordinator_key.empty()
                                           ? FindKeyFile(kCoordinatorPublicFile)
                                           : flags.coordinator_key));
  return client;
}

absl::StatusOr<std::optional<CurveKeyPair>> FindCoordinatorKeys(
    const std::string& endpoint, const std::string& key_file) {
  GAVEL_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  if (key_file.empty() && IsLoopback(endpoint)) return std::nullopt;
  const std::string path =
      key_file.empty() ? FindKeyFile(kCoordinatorKeyFile) : key_file;
  absl::StatusOr<CurveKeyPair> keys = ReadKeyFile(path);
  if (keys.ok()) return *std::move(keys);
  if (!absl::IsNotFound(keys.status())) return keys.status();
  const std::filesystem::path named(path);
  const bool elsewhere = named.filename() == kCoordinatorKeyFile &&
                         !named.parent_path().empty() &&
                         named.parent_path() != OwnKeyDirectory();
  return absl::NotFoundError(StrCat(
      "there is no key file ", path,
      "; make it with `gavel keygen --coordinator",
      elsewhere ? StrCat(" --directory ", named.parent_path().string()) : "",
      "`. Without keys a coordinator listens on this machine only, and ",
      endpoint, " is beyond it"));
}

}  // namespace gavel
