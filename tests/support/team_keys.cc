#include "tests/support/team_keys.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "coordinator/server/principals.h"
#include "core/text.h"
#include "runtime/transport/curve.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kCoordinatorName[] = "coordinator";
constexpr char kUserName[] = "alice";

void RequireDone(bool done, const std::string& what) {
  if (done) return;
  std::perror(what.c_str());
  std::abort();
}

// Jobs of others run as root only where there are no keys.
const passwd& JobsUser(const char* name = "nobody") {
  const passwd* const user =
      geteuid() == 0 ? getpwnam(name) : getpwuid(geteuid());
  RequireDone(user != nullptr, "the user that jobs run as");
  return *user;
}

}  // namespace

TeamKeys::TeamKeys(const std::string& folder,
                   const std::vector<std::string>& servers)
    : folder_(folder) {
  const passwd& user = JobsUser();
  RequireDone(chmod(folder.c_str(), 0711) == 0, folder);
  RequireDone(fs::create_directory(jobs()) &&
                  fs::create_directory(Path("keys")) &&
                  chown(jobs().c_str(), user.pw_uid, user.pw_gid) == 0,
              jobs());
  Principals principals;
  const auto make = [&](const std::string& name) {
    const CurveKeyPair keys = NewCurveKeyPair().value();
    RequireDone(WriteKeyFile(Path(StrCat("keys/", name)), keys).ok(), name);
    return keys.public_key;
  };
  const std::string public_key = make(kCoordinatorName);
  principals[kUserName] = {Role::kUser, user.pw_name, make(kUserName)};
  for (const std::string& server : servers) {
    principals[server] = {Role::kNode, "", make(server)};
  }
  RequireDone(WritePrincipals(Path("principals.toml"), principals).ok() &&
                  WritePublicKeyFile(Path("coordinator.pub"), public_key).ok(),
              folder);
  setenv("GAVEL_KEY_FILE", KeyFile(kUserName).c_str(), 1);
  setenv("GAVEL_COORDINATOR_KEY", public_key.c_str(), 1);
}

void TeamKeys::AddUser(const std::string& name) const {
  const passwd& user = JobsUser("daemon");
  const CurveKeyPair keys = NewCurveKeyPair().value();
  const std::string file = Path("principals.toml");
  Principals principals = ReadPrincipals(file).value();
  principals[name] = {Role::kUser, user.pw_name, keys.public_key};
  RequireDone(WriteKeyFile(KeyFile(name), keys).ok() &&
                  WritePrincipals(file, principals).ok() &&
                  fs::create_directory(JobsOf(name)) &&
                  chown(JobsOf(name).c_str(), user.pw_uid, user.pw_gid) == 0,
              name);
}

std::string TeamKeys::KeyFile(const std::string& user) const {
  return Path(StrCat("keys/", user));
}

std::string TeamKeys::JobsOf(const std::string& user) const {
  return user == kUserName ? jobs() : StrCat(jobs(), "-of-", user);
}

CurveClient TeamKeys::Keys(const std::string& key_file) const {
  std::ostringstream text;
  text << std::ifstream(key_file).rdbuf();
  return {ParseKeyFile(text.str()),
          ReadPublicKey(Path("coordinator.pub")).value()};
}

TeamKeys::~TeamKeys() {
  unsetenv("GAVEL_KEY_FILE");
  unsetenv("GAVEL_COORDINATOR_KEY");
}

std::string TeamKeys::Path(const std::string& name) const {
  return StrCat(folder_, "/", name);
}

std::vector<std::string> TeamKeys::OfCoordinator() const {
  return {"--key", Path(StrCat("keys/", kCoordinatorName)), "--principals",
          Path("principals.toml")};
}

std::vector<std::string> TeamKeys::OfAgent(const std::string& server) const {
  return {"--key", Path(StrCat("keys/", server)), "--coordinator-key",
          Path("coordinator.pub")};
}

std::string TeamKeys::Copy(const std::string& program) const {
  const fs::path copy = fs::path(jobs()) / fs::path(program).filename();
  fs::copy_file(program, copy, fs::copy_options::skip_existing);
  return copy;
}

}  // namespace gavel::testing
