// Makes the keys of a team's cluster on this machine, as in docs/security.md:
// files with the coordinator's key, a key for each server and a key for one
// user, and the list of keys that may connect. While an object lives, client
// commands that this process starts use the user's key (GAVEL_KEY_FILE). Aborts
// if the files can't be made.
#ifndef GAVEL_TESTS_SUPPORT_TEAM_KEYS_H_
#define GAVEL_TESTS_SUPPORT_TEAM_KEYS_H_

#include <string>
#include <vector>

#include "runtime/transport/curve.h"

namespace gavel::testing {

class TeamKeys {
 public:
  // Makes the files under `folder`, which the jobs' user may pass through from
  // now on.
  TeamKeys(const std::string& folder, const std::vector<std::string>& servers);
  ~TeamKeys();
  TeamKeys(const TeamKeys&) = delete;
  TeamKeys& operator=(const TeamKeys&) = delete;

  // Adds a user with a key of its own. If this process is root, jobs of that
  // user run as another Unix user than those of the first.
  void AddUser(const std::string& name) const;
  std::string KeyFile(const std::string& user) const;
  // The keys with which a client or worker that has this key file connects.
  CurveClient Keys(const std::string& key_file) const;
  // A directory for that user's jobs.
  std::string JobsOf(const std::string& user) const;

  // Flags of `gavel coordinator` and `gavel agent`.
  std::vector<std::string> OfCoordinator() const;
  std::vector<std::string> OfAgent(const std::string& server) const;

  // A directory of the user that jobs run as: nobody if this process is root,
  // else the process's own user.
  std::string jobs() const { return folder_ + "/jobs"; }
  // Copies the program there, where the user can run it.
  std::string Copy(const std::string& program) const;

 private:
  std::string Path(const std::string& name) const;
  std::string folder_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_TEAM_KEYS_H_
