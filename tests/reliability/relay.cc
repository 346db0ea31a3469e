// Passes TCP connections on, for a process in another network namespace.
//
//   relay LISTEN_ADDRESS LISTEN_PORT TARGET_ADDRESS TARGET_PORT
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/reliability/chaos_proxy.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s ADDRESS PORT TARGET_ADDRESS PORT\n",
                 argv[0]);
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const gavel::testing::ChaosProxy relay(argv[3], std::atoi(argv[4]),
                                         /*seed=*/1, argv[1],
                                         std::atoi(argv[2]));
  std::printf("relay on %d\n", relay.port());
  std::fflush(stdout);
  sigset_t none;
  sigemptyset(&none);
  sigsuspend(&none);
}
