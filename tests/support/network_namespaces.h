// Network namespaces of a test's own, which go with it. Needs root and
// iproute2.
#ifndef GAVEL_TESTS_SUPPORT_NETWORK_NAMESPACES_H_
#define GAVEL_TESTS_SUPPORT_NETWORK_NAMESPACES_H_

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/text.h"

namespace gavel::testing {

class NetworkNamespaces {
 public:
  explicit NetworkNamespaces(std::vector<std::string> names)
      : names_(std::move(names)) {
    for (const std::string& name : names_) {
      made_ = made_ && Ip("netns add ", InSystem(name)) &&
              In(name, "link set lo up");
    }
  }
  ~NetworkNamespaces() {
    for (const std::string& name : names_) Ip("netns del ", InSystem(name));
  }
  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;

  bool made() const { return made_; }
  // As iproute2 knows it.
  static std::string InSystem(const std::string& name) {
    return StrCat("gavel", getpid(), name);
  }
  // "ip netns exec", to begin an argv with.
  static std::vector<std::string> Exec(const std::string& name) {
    return {"/usr/sbin/ip", "netns", "exec", InSystem(name)};
  }
  // `ip` with these words, here or in a namespace; whether it did that.
  template <class... T>
  static bool Ip(const T&... words) {
    return std::system(
               StrCat("/usr/sbin/ip ", words..., " >/dev/null 2>&1").c_str()) ==
           0;
  }
  template <class... T>
  static bool In(const std::string& name, const T&... words) {
    return Ip("-n ", InSystem(name), " ", words...);
  }

 private:
  const std::vector<std::string> names_;
  bool made_ = geteuid() == 0;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_NETWORK_NAMESPACES_H_
