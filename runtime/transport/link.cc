#include "runtime/transport/link.h"

#include "core/text.h"

namespace gavel {

std::string LinkText(const Link& link, const std::string& endpoint,
                     const std::string& public_key) {
  if (link.revoked()) {
    return StrCat("key revoked: the coordinator at ", endpoint,
                  " does not allow the key ", public_key,
                  " any more; ask an operator, who can allow it, or another "
                  "one, with `gavel user add`");
  }
  const bool closed =
      link.state == LinkState::kWrongKey || link.state == LinkState::kOtherMode;
  if (closed && public_key.empty()) {
    return StrCat("keys wanted: what listens at ", endpoint,
                  " talks to nobody without a key; name yours with --key, make "
                  "one with `gavel keygen`, or correct the address");
  }
  switch (link.state) {
    case LinkState::kRefused:
    case LinkState::kRevoked:
      return StrCat("key refused: the coordinator at ", endpoint,
                    " does not know the key ", public_key,
                    "; an operator sees with `gavel user list` there who is "
                    "allowed, and allows it with `gavel user add`");
    case LinkState::kWrongKey:
      return StrCat("wrong coordinator key: what listens at ", endpoint,
                    " does not have the public key that is given here for it; "
                    "compare with its coordinator.pub, and name that with "
                    "--coordinator-key, or correct the address");
    case LinkState::kKeptOut:
      return StrCat("kept out: the coordinator at ", endpoint,
                    " closes each connection of the key ", public_key,
                    " once it has seen the key: it has as many of this key, or "
                    "from this address, as it takes (end programs here that "
                    "keep theirs open), or it has not yet heard whose the key "
                    "is (then it takes a minute at most)");
    case LinkState::kOtherMode:
      return StrCat("no keys there: what listens at ", endpoint,
                    " has no keys, and nothing is sent to it unencrypted; "
                    "leave --key out, or correct the address");
    case LinkState::kSilent:
      return StrCat("no coordinator answers at ", endpoint,
                    ": it is connected, or was, and silent; is the "
                    "coordinator stopped, or something else there?");
    case LinkState::kUnknown:
    case LinkState::kNobody:
    case LinkState::kConnected:
      break;
  }
  return StrCat("no coordinator answers at ", endpoint,
                ": nobody listens there; start one with `gavel coordinator`, "
                "or correct the address (--coordinator, GAVEL_COORDINATOR)");
}

}  // namespace gavel
