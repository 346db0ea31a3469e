#include "runtime/transport/curve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {
namespace {

constexpr size_t kKeyFileBytesMax = 4096;
constexpr char kPublicName[] = "public_key";
constexpr char kSecretName[] = "secret_key";
constexpr std::string_view kZ85 =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/"
    "*?&<>"
    "()[]{}@%$#";

// ZeroMQ writes the 40 characters and a zero.
using KeyText = std::array<char, kCurveKeyChars + 1>;

absl::Status Errno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat("key file ", path)));
}

absl::Status WriteAll(int descriptor, std::string_view text,
                      const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Errno(path);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(descriptor) == 0 ? absl::OkStatus() : Errno(path);
}

// Checks that only the owner may use the file. A user who can read a secret key
// can act as its principal; a user who can write the file chooses as which
// principal we act.
absl::Status CheckPrivate(int descriptor, const std::string& path) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return Errno(path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        StrCat("key file ", path, " is not a file; name the key's file"));
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        StrCat("key file ", path,
               " may be used by others than its owner; chmod 600 it, and make "
               "a new key if others may have read it"));
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return absl::PermissionDeniedError(
        StrCat("key file ", path, " belongs to user ", info.st_uid,
               "; use a key of your own (`gavel keygen`)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(int descriptor, const std::string& path) {
  std::string text(kKeyFileBytesMax, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got =
        read(descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno(path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

bool IsPair(const CurveKeyPair& keys) {
  KeyText derived{};
  return IsCurveKey(keys.public_key) && IsCurveKey(keys.secret_key) &&
         zmq_curve_public(derived.data(), keys.secret_key.c_str()) == 0 &&
         keys.public_key == derived.data();
}

}  // namespace

CurveKeyPair ParseKeyFile(std::string_view text) {
  CurveKeyPair keys;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(text), '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(parts.first);
    const std::string value(absl::StripAsciiWhitespace(parts.second));
    if (name == kPublicName) keys.public_key = value;
    if (name == kSecretName) keys.secret_key = value;
  }
  return keys;
}

absl::StatusOr<CurveKeyPair> NewCurveKeyPair() {
  KeyText public_key{};
  KeyText secret_key{};
  do {
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
      return absl::UnimplementedError(
          "this libzmq was built without CURVE; install one that has it "
          "(Debian's libzmq5 does)");
    }
    // A public key must begin with a letter or digit: people write it on
    // command lines, where a leading "-" or "=" would be misread.
  } while (!absl::ascii_isalnum(static_cast<unsigned char>(public_key[0])));
  return CurveKeyPair{public_key.data(), secret_key.data()};
}

bool IsCurveKey(std::string_view text) {
  return text.size() == kCurveKeyChars &&
         text.find_first_not_of(kZ85) == std::string_view::npos;
}

absl::Status WriteKeyFile(const std::string& path, const CurveKeyPair& keys) {
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
           0600));
  if (file.get() < 0 && errno == EEXIST) {
    return absl::AlreadyExistsError(
        StrCat("key file ", path,
               " is there already; it is not overwritten. Use it, or move it "
               "away to replace the key"));
  }
  if (file.get() < 0) return Errno(path);
  return WriteAll(
      file.get(),
      StrCat("# A key of Gavel. Whoever can read this file is its owner.\n",
             kPublicName, " = ", keys.public_key, "\n", kSecretName, " = ",
             keys.secret_key, "\n"),
      path);
}

absl::Status WritePublicKeyFile(const std::string& path,
                                const std::string& public_key) {
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
           0644));
  if (file.get() < 0) return Errno(path);
  return WriteAll(file.get(), StrCat(kPublicName, " = ", public_key, "\n"),
                  path);
}

absl::StatusOr<std::string> ReadPublicKey(const std::string& key_or_path) {
  if (IsCurveKey(key_or_path)) return key_or_path;
  const Descriptor file(
      open(key_or_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    return absl::NotFoundError(
        StrCat("\"", key_or_path,
               "\" is neither a public key of 40 characters nor a file that "
               "can be read; take coordinator.pub, which `gavel keygen "
               "--coordinator` wrote"));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadText(file.get(), key_or_path));
  const std::string key = ParseKeyFile(text).public_key;
  if (IsCurveKey(key)) return key;
  return absl::InvalidArgumentError(
      StrCat(key_or_path,
             " holds no public key; take coordinator.pub, which "
             "`gavel keygen --coordinator` wrote"));
}

absl::StatusOr<CurveKeyPair> ReadKeyFile(const std::string& path) {
  // O_NONBLOCK: a FIFO in the place of the file must not block us.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) {
    return absl::NotFoundError(StrCat("there is no key file ", path,
                                      "; make one with `gavel keygen`"));
  }
  if (file.get() < 0) return Errno(path);
  GAVEL_RETURN_IF_ERROR(CheckPrivate(file.get(), path));
  GAVEL_ASSIGN_OR_RETURN(const std::string text, ReadText(file.get(), path));
  CurveKeyPair keys = ParseKeyFile(text);
  if (IsPair(keys)) return keys;
  return absl::InvalidArgumentError(
      StrCat("key file ", path,
             " does not hold a public and a secret key that belong together; "
             "make a new one with `gavel keygen`"));
}

absl::StatusOr<std::optional<CurveClient>> CurveClientOfEnvironment() {
  const char* const file = std::getenv("GAVEL_KEY_FILE");
  const char* const server = std::getenv("GAVEL_COORDINATOR_KEY");
  if (file == nullptr && server == nullptr) return std::nullopt;
  if (file == nullptr || server == nullptr || !IsCurveKey(server)) {
    return absl::InvalidArgumentError(
        "GAVEL_KEY_FILE and GAVEL_COORDINATOR_KEY (40 characters) go together; "
        "start this program by `gavel submit`, or unset both");
  }
  GAVEL_ASSIGN_OR_RETURN(CurveKeyPair own, ReadKeyFile(file));
  return CurveClient{std::move(own), server};
}

}  // namespace gavel
