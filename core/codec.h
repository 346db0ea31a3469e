// Encodes and decodes the messages of the wire: a fixed header, then one
// msgpack array per struct. Fields are only ever appended: a reader uses the
// defaults for fields that an older writer did not know, and ignores fields
// that a newer writer has added. The journal's rows
// (coordinator/engine/event.h) follow the same rule. Called by the
// transport and the server. Stateless, thread-safe.
#ifndef GAVEL_CORE_CODEC_H_
#define GAVEL_CORE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/messages.h"

namespace gavel {

// The version of the protocol, in the header. Frames of any other version are
// refused. 0 is no version: it marks a refusal, see EncodeVersionRefusal.
inline constexpr uint8_t kProtocolVersion = 1;
// The largest size of a frame (ROUTER's MAXMSGSIZE).
inline constexpr size_t kFrameBytesMax = 64 * 1024;
// "GVL", the version, and the type, which is the message's index in Message
// plus one.
inline constexpr size_t kFrameHeaderBytes = 5;

// Encodes header and body. RESOURCE_EXHAUSTED if the frame would be longer than
// kFrameBytesMax or a part of it exceeds the limits of core/packer.h; the
// sender must then send it in parts.
absl::StatusOr<std::string> EncodeMessage(const Message& message);

// Decodes a frame. INVALID_ARGUMENT, with the reason, if it is not a frame of
// this protocol. FAILED_PRECONDITION if it has another protocol version ("the
// peer speaks protocol 2, this is 1; update the older side") or is a peer's
// refusal of our version. Never throws, never reads past the frame, and
// allocates at most a small multiple of its size.
absl::StatusOr<Message> DecodeMessage(std::string_view frame);

// The reply to a frame of another version, which every version understands:
// "GVL", 0, the lowest and the highest version that the sender speaks (one byte
// each), and a text for people of at most kRefusalTextBytesMax. This format
// never changes (docs/protocol.md).
inline constexpr size_t kRefusalTextBytesMax = 512;
std::string EncodeVersionRefusal();

// The name of the message's type, as in "LeaseGrant", for logs and errors.
std::string_view MessageName(const Message& message);

}  // namespace gavel

#endif  // GAVEL_CORE_CODEC_H_
