#include "coordinator/http/http_server.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(HttpChecks, ReadAddresses) {
  ASSERT_OK_AND_ASSIGN(const HttpAddress v4,
                       ParseHttpAddress("127.0.0.1:8080"));
  EXPECT_EQ(v4.host, "127.0.0.1");
  EXPECT_EQ(v4.port, 8080);
  ASSERT_OK_AND_ASSIGN(const HttpAddress v6, ParseHttpAddress("[::1]:0"));
  EXPECT_EQ(v6.host, "::1");
  EXPECT_EQ(v6.port, 0);
  EXPECT_THAT(ParseHttpAddress("localhost"), IsInvalid("127.0.0.1:8080"));
  EXPECT_THAT(ParseHttpAddress("[::1]"), IsInvalid("127.0.0.1:8080"));
}

TEST(HttpChecks, TakeOnlyTheSameSchemeHostAndPortForTheSameOrigin) {
  EXPECT_TRUE(IsSameOrigin("http://127.0.0.1:8080", "127.0.0.1:8080"));
  EXPECT_TRUE(IsSameOrigin("https://Gavel.example", "gavel.example"));
  EXPECT_FALSE(IsSameOrigin("http://127.0.0.1:8081", "127.0.0.1:8080"));
  EXPECT_FALSE(IsSameOrigin("http://127.0.0.1:8080.evil", "127.0.0.1:8080"));
  EXPECT_FALSE(IsSameOrigin("null", "127.0.0.1:8080"));
  EXPECT_FALSE(IsSameOrigin("file://127.0.0.1:8080", "127.0.0.1:8080"));
  EXPECT_FALSE(IsSameOrigin("", ""));
}

TEST(HttpChecks, FindTheHostOfAUrl) {
  EXPECT_EQ(HostOfUrl("https://gavel.example.org:444/gavel"),
            "gavel.example.org");
  EXPECT_EQ(HostOfUrl("http://[::1]:80"), "[::1]");
  EXPECT_EQ(HostOfUrl("gavel.example.org"), "");
  EXPECT_FALSE(IsHostAllowed("", HostOfUrl("")));
}

TEST(HttpChecks, FindTheTokenOfAHeader) {
  EXPECT_EQ(BearerToken("Bearer abc"), "abc");
  EXPECT_EQ(BearerToken("bearer abc"), "abc");
  EXPECT_EQ(BearerToken("Basic abc"), "");
  EXPECT_EQ(BearerToken("Bearer"), "");
}

TEST(HttpChecks, ReadEachAction) {
  const std::pair<const char*, CommandKind> kinds[] = {
      {"hold", CommandKind::kHold},     {"release", CommandKind::kRelease},
      {"cancel", CommandKind::kCancel}, {"requeue", CommandKind::kRequeue},
      {"drain", CommandKind::kDrain},   {"undrain", CommandKind::kResume},
      {"policy", CommandKind::kPolicy}};
  for (const auto& [action, kind] : kinds) {
    ASSERT_OK_AND_ASSIGN(
        const CommandRequest command,
        ParseAction(std::string(R"({"target":"7","action":")") + action +
                    "\"}"));
    EXPECT_EQ(command.kind, kind) << action;
    const bool of_job = command.job.valid();
    EXPECT_EQ(of_job, command.target.empty()) << action;
    EXPECT_EQ(of_job ? "7" : command.target, "7");
  }
  ASSERT_OK_AND_ASSIGN(const CommandRequest element,
                       ParseAction(R"({"target":"42_7","action":"hold"})"));
  EXPECT_EQ(element.job, JobId(42));
  EXPECT_EQ(element.elements, "7");
  EXPECT_THAT(ParseAction(R"({"target":"4_x","action":"hold"})"),
              IsInvalid("is no id of a job"));
  for (const char* other : {"shutdown", "forget", "update", "checkpoint"}) {
    EXPECT_THAT(
        ParseAction(std::string(R"({"target":"7","action":")") + other + "\"}"),
        IsInvalid("there is no such action"));
  }
}

}  // namespace
}  // namespace gavel::testing
