// How a Dealer's connection to its coordinator stands, and in words why there
// is none: the same sentences for clients, agents and workers. Values.
#ifndef GAVEL_RUNTIME_TRANSPORT_LINK_H_
#define GAVEL_RUNTIME_TRANSPORT_LINK_H_

#include <cstdint>
#include <string>

namespace gavel {

enum class LinkState : uint8_t {
  kUnknown,    // nothing has come of the first attempt yet
  kNobody,     // nobody listens there, or the network does not lead there
  kSilent,     // somebody listens and says nothing, or the connection broke
  kWrongKey,   // closed in each handshake, for longer than a coordinator of
               // that key takes to refuse ours
  kKeptOut,    // the same, but it proved to have the key that we have of it
  kOtherMode,  // one of both has keys, the other has none
  kRefused,    // the coordinator does not know our key
  kRevoked,    // it knows that our key was revoked
  kConnected,
};

struct Link {
  LinkState state = LinkState::kUnknown;
  bool was_connected = false;  // at some time

  bool connected() const { return state == LinkState::kConnected; }
  // Waiting does not help, but a change elsewhere.
  bool refused() const {
    return state == LinkState::kOtherMode || state == LinkState::kRefused ||
           state == LinkState::kRevoked;
  }
  // Each handshake is closed.
  bool closed() const {
    return state == LinkState::kWrongKey || state == LinkState::kKeptOut;
  }
  // What was allowed before is no more: the key was revoked, maybe before the
  // coordinator that runs now was started.
  bool revoked() const {
    return state == LinkState::kRevoked ||
           (state == LinkState::kRefused && was_connected);
  }
};

// Why there is no connection to `endpoint`, and what to do. `public_key`: of
// the caller; empty: it has no keys.
std::string LinkText(const Link& link, const std::string& endpoint,
                     const std::string& public_key);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_LINK_H_
