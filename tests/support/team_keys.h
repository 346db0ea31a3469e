// A team's cluster on this machine, with keys as docs/security.md has it: files
// of the coordinator's key, of one for each server and of one user's, and who
// may connect. While one lives, client commands that this process starts use
// the user's key (GAVEL_KEY_FILE). Aborts when the files can't be made.
#ifndef GAVEL_TESTS_SUPPORT_TEAM_KEYS_H_
#define GAVEL_TESTS_SUPPORT_TEAM_KEYS_H_

#include <string>
#include <vector>

#include "runtime/transport/curve.h"

namespace gavel::testing {

class TeamKeys {
 public:
  // Under `folder`, which the jobs' user may pass through from now on.
  TeamKeys(const std::string& folder, const std::vector<std::string>& servers);
  ~TeamKeys();
  TeamKeys(const TeamKeys&) = delete;
  TeamKeys& operator=(const TeamKeys&) = delete;

  // One more user, with a key of its own. As root its jobs run as another Unix
  // user than those of the first.
  void AddUser(const std::string& name) const;
  std::string KeyFile(const std::string& user) const;
  // What a client or a worker with that key file connects with.
  CurveClient Keys(const std::string& key_file) const;
  // A directory of that user's jobs.
  std::string JobsOf(const std::string& user) const;

  // Flags of `gavel coordinator` and `gavel agent`.
  std::vector<std::string> OfCoordinator() const;
  std::vector<std::string> OfAgent(const std::string& server) const;

  // A directory of the user that jobs run as: nobody when this process is
  // root, else its own.
  std::string jobs() const { return folder_ + "/jobs"; }
  // A copy of that program there, which the user can run.
  std::string Copy(const std::string& program) const;

 private:
  std::string Path(const std::string& name) const;
  std::string folder_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_TEAM_KEYS_H_
