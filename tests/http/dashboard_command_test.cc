// `gavel coordinator --http` and `gavel dashboard` as processes.
#include <unistd.h>

#include "coordinator/http/http_server.h"
#include "core/text.h"
#include "tests/http/raw_http.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class DashboardCommand : public GavelTest {
 protected:
  std::vector<std::string> Coordinator(const std::string& state,
                                       const std::string& http) {
    return {"coordinator", "--listen", "127.0.0.1:0", "--state",
            Path(state),   "--http",   http};
  }
};

TEST_F(DashboardCommand, PrintsALinkByWhichABrowserActs) {
  const auto coordinator = Start(Coordinator("state", "127.0.0.1:0"));
  const std::string endpoint = EndpointOf(*coordinator);
  const Ended text = Run({"dashboard", "--coordinator", endpoint});
  EXPECT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_THAT(text.output,
              MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+/#token=[0-9a-f]+\n"));
  EXPECT_THAT(text.errors, HasSubstr("12 hours"));

  const Ended ended = Run({"dashboard", "--json", "--coordinator", endpoint});
  const json link = json::parse(ended.output);
  const std::string token = link["token"];
  const std::string url = link["url"];
  EXPECT_TRUE(url.ends_with("/#token=" + token));
  const int port = PortOf(url.substr(0, url.find("/#")));
  EXPECT_EQ(Get(port, "/healthz").body, "ok\n");
  EXPECT_THAT(Get(port, "/chart.umd.js").body, HasSubstr("Chart.js"));
  const RawAnswer set =
      Post(port, token, R"({"action":"policy","target":"fifo"})");
  EXPECT_EQ(set.code, 200) << set.body;
  EXPECT_EQ(Run({"policy", "--coordinator", endpoint}).output.find("fifo"), 0);
}

TEST_F(DashboardCommand, SaysThatALinkEndsTheOldestOne) {
  const auto coordinator = Start(Coordinator("state", "127.0.0.1:0"));
  const std::string endpoint = EndpointOf(*coordinator);
  for (size_t i = 0; i < DashboardTokens::kTokensOfOneKeyMax; ++i) {
    const Ended link = Run({"dashboard", "--coordinator", endpoint});
    EXPECT_THAT(link.errors, Not(HasSubstr("oldest")));
  }
  EXPECT_THAT(Run({"dashboard", "--coordinator", endpoint}).errors,
              HasSubstr("your oldest link has ended for it"));
}

TEST_F(DashboardCommand, SaysHowToGetADashboard) {
  const auto coordinator = Start(
      {"coordinator", "--listen", "127.0.0.1:0", "--state", Path("state")});
  const Ended refused =
      Run({"dashboard", "--coordinator", EndpointOf(*coordinator)});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, HasSubstr("start it with --http"));
}

TEST_F(DashboardCommand, OfACoordinatorThatCanNotListenEndsItsStart) {
  const auto first = Start(Coordinator("state", "127.0.0.1:0"));
  const Ended link =
      Run({"dashboard", "--json", "--coordinator", EndpointOf(*first)});
  const std::string url = json::parse(link.output)["url"];
  const int port = PortOf(url.substr(0, url.find("/#")));
  const Ended taken = Run(Coordinator("other", StrCat("127.0.0.1:", port)));
  EXPECT_EQ(taken.exit_code, 3);
  EXPECT_THAT(taken.errors, HasSubstr("another program listens there"));
  EXPECT_NE(access(Path("other/journal.db").c_str(), F_OK), 0)
      << "a term was begun";
  const Ended open = Run(Coordinator("third", "0.0.0.0:0"));
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.errors, HasSubstr("ssh -L"));
}

}  // namespace
}  // namespace gavel::testing
