// A TCP port of loopback for a test's processes.
#ifndef GAVEL_TESTS_SUPPORT_FREE_PORT_H_
#define GAVEL_TESTS_SUPPORT_FREE_PORT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gavel::testing {

// Free a moment ago.
inline int FreePort() {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(descriptor, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  close(descriptor);
  return ntohs(address.sin_port);
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_FREE_PORT_H_
