// Tests which messages each role may send to a coordinator with keys, and which
// not.
#include <cstddef>
#include <variant>

#include "core/codec.h"
#include "core/text.h"
#include "tests/server/encrypted_coordinator_fixture.h"

namespace gavel::testing {
namespace {

// Each role over a real connection: a message that the table does not allow is
// refused, reaches nobody else, and is written to the audit log. The connection
// still serves the peer afterwards.
class EachRole : public EncryptedCoordinator,
                 public ::testing::WithParamInterface<Role> {
 protected:
  // A worker's key is known once its agent has reported it.
  std::unique_ptr<FakePeer> Connect() {
    static const std::map<Role, std::string> kNames = {
        {Role::kUser, "alice"},
        {Role::kOperator, "olga"},
        {Role::kViewer, "vera"},
        {Role::kNode, "here"}};
    if (const auto name = kNames.find(GetParam()); name != kNames.end()) {
      return std::make_unique<FakePeer>(Endpoint(), As(name->second));
    }
    agent_ = std::make_unique<FakeAgent>(Endpoint(), "here", 1, As("here"));
    EXPECT_TRUE(agent_->Join(1).has_value());
    return LaunchOne(*agent_).worker;
  }
  template <size_t... index>
  static std::vector<Message> OneOfEach(std::index_sequence<index...>) {
    return {Message(std::in_place_index<index>)...};
  }

  std::unique_ptr<FakeAgent> agent_;
};

TEST_P(EachRole, IsRefusedEveryMessageThatIsNotIts) {
  const std::unique_ptr<FakePeer> peer = Connect();
  ASSERT_NE(peer, nullptr);
  const nlohmann::json before = Client("bob").Query(QueryKind::kQueue);
  size_t refused = 0;
  for (const Message& message : OneOfEach(
           std::make_index_sequence<std::variant_size_v<MessageVariant>>())) {
    if (MaySend(GetParam(), message)) continue;
    peer->Send(message);
    ++refused;
    const std::string said =
        StrCat("this role may not send ", MessageName(message));
    EXPECT_TRUE(IsAudited(said)) << said;
  }
  EXPECT_GE(refused, 24U);
  EXPECT_EQ(Client("bob").Query(QueryKind::kQueue).size(), before.size());
  EXPECT_TRUE(Client("bob").Query(QueryKind::kStatus).is_object());
}

INSTANTIATE_TEST_SUITE_P(Roles, EachRole,
                         ::testing::Values(Role::kUser, Role::kOperator,
                                           Role::kViewer, Role::kNode,
                                           Role::kWorker),
                         [](const auto& role) {
                           return std::string(RoleName(role.param));
                         });

}  // namespace
}  // namespace gavel::testing
