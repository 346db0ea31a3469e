// Which endpoints are accepted, and how the others are refused.
#include <sys/resource.h>

#include "runtime/transport/dealer_router.h"
#include "runtime/transport/socket_options.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(Endpoint, LoopbackIsKnownByItsNumbers) {
  for (const char* text : {"127.0.0.1:7077", "tcp://127.0.0.1:7077",
                           "127.8.9.10:1", "localhost:7077", "[::1]:7077"}) {
    const auto endpoint = transport::ParseEndpoint(text);
    ASSERT_OK(endpoint.status());
    EXPECT_TRUE(endpoint->loopback) << text;
  }
  for (const char* text : {"10.0.0.1:7077", "0.0.0.0:7077", "*:7077",
                           "head-node:7077", "127.0.0.1.example.org:7077",
                           "127.1:7077", "[::]:7077", "[fe80::1]:7077"}) {
    const auto endpoint = transport::ParseEndpoint(text);
    ASSERT_OK(endpoint.status());
    EXPECT_FALSE(endpoint->loopback) << text;
  }
}

TEST(Endpoint, WhatIsNoneIsRefusedWithAnExample) {
  for (const char* text :
       {"", "7077", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http",
        "127.0.0.1:65536", "127.0.0.1:-1", ":7077", "ipc:///tmp/socket:1",
        "127.0.0.1:7077;10.0.0.1:7077", "10.0.0.1;127.0.0.1:7077"}) {
    EXPECT_THAT(transport::ParseEndpoint(text), IsInvalid("127.0.0.1:7077"))
        << text;
    EXPECT_THAT(Dealer::Connect(text).status(), IsInvalid("")) << text;
    EXPECT_THAT(Router::Bind(text).status(), IsInvalid("")) << text;
  }
}

TEST(Endpoint, ARouterIsNotBoundBeyondLoopback) {
  for (const char* text : {"0.0.0.0:7077", "*:7077", "192.168.1.5:7077"}) {
    EXPECT_THAT(Router::Bind(text).status(),
                StatusIs(kPermissionDenied, "or use 127.0.0.1:7077"))
        << text;
  }
}

TEST(Endpoint, ADealerIsNotConnectedBeyondLoopback) {
  EXPECT_THAT(Dealer::Connect("192.168.1.5:7077").status(),
              StatusIs(kPermissionDenied, "gavel keygen"));
  EXPECT_THAT(Dealer::Connect("127.0.0.1:0").status(), IsInvalid("port 0"));
}

TEST(Endpoint, ATakenPortIsNamedWithItsRemedy) {
  const auto first = Router::Bind("127.0.0.1:0");
  ASSERT_OK(first.status());
  const std::string endpoint = (*first)->endpoint();
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  const auto second = Router::Bind(endpoint);
  EXPECT_THAT(second.status(),
              StatusIs(kAlreadyExists, "port " + port + " of 127.0.0.1"));
  EXPECT_THAT(second.status(), StatusIs(kAlreadyExists, "choose another port"));
}

TEST(Endpoint, ARouterTellsThePortThatItFound) {
  const auto router = Router::Bind("tcp://127.0.0.1:0");
  ASSERT_OK(router.status());
  EXPECT_THAT((*router)->endpoint(),
              MatchesRegex("tcp://127\\.0\\.0\\.1:[1-9][0-9]*"));
}

TEST(Endpoint, ARouterRaisesTheLimitOfOpenFiles) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 512;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_OK(Router::Bind("127.0.0.1:0").status());
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

}  // namespace
}  // namespace gavel
