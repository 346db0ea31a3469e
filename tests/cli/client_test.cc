// The client's requests to a coordinator that answers late or not at all.
#include "coordinator/cli/client.h"

#include <thread>

#include "core/text.h"
#include "runtime/transport/dealer_router.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class ClientTest : public Test {
 protected:
  void SetUp() override {
    router_ = *Router::Bind("tcp://127.0.0.1:0");
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Connect(router_->endpoint());
    ASSERT_OK(client);
    client_ = *std::move(client);
  }

  std::unique_ptr<Router> router_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, ACommandWithoutAnAnswerMayHaveBeenDone) {
  CommandRequest command;
  command.job = JobId(3);
  const absl::Status status = client_->Command(command, /*timeout_s=*/0.2);
  EXPECT_THAT(status, StatusIs(kUnavailable, router_->endpoint()));
  EXPECT_THAT(status.message(),
              HasSubstr("did not answer within 0.2 s: it may have been done; "
                        "see `gavel queue`"));
}

TEST_F(ClientTest, ASubmissionThatIsAnsweredLateIsAccepted) {
  std::thread coordinator([this] {
    std::optional<Incoming> incoming;
    for (int i = 0; i < 60 && !incoming; ++i) incoming = router_->Receive(1);
    const auto* const request =
        incoming ? std::get_if<SubmitRequest>(&incoming->message) : nullptr;
    if (request == nullptr) return;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(Client::kReplyTimeout_s + 0.5));
    router_->Send(incoming->peer, SubmitReply{request->request, JobId(7), ""})
        .IgnoreError();
  });
  internal::CaptureStderr();
  const absl::StatusOr<JobId> job = client_->Submit("a.toml", "", "/");
  const std::string errors = internal::GetCapturedStderr();
  coordinator.join();
  ASSERT_OK(job);
  EXPECT_EQ(*job, JobId(7));
  EXPECT_THAT(errors, HasSubstr("has not answered yet; waiting up to 30 s"));
}

}  // namespace
}  // namespace gavel
