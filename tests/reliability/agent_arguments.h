// How tests of faults start an agent: with the cluster file of their folder and
// a state of its own, one folder for the sockets of all.
#ifndef GAVEL_TESTS_RELIABILITY_AGENT_ARGUMENTS_H_
#define GAVEL_TESTS_RELIABILITY_AGENT_ARGUMENTS_H_

#include <string>
#include <vector>

namespace gavel::testing {

inline std::vector<std::string> AgentArguments(const std::string& folder,
                                               const std::string& endpoint,
                                               const std::string& server) {
  return {"agent",
          "--coordinator",
          endpoint,
          "--cluster",
          folder + "/cluster.toml",
          "--server",
          server,
          "--state",
          folder + "/agent-" + server,
          "--run-directory",
          folder + "/run",
          "--stop-grace",
          "2"};
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_AGENT_ARGUMENTS_H_
