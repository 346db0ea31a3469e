// Bytes of the wire and of the journal: a fixed header, then one msgpack array
// per struct. Fields are only appended: a reader takes
// defaults for the ones that an older writer did not know, and ignores the ones
// that a newer writer added. Called by transport, server and engine; stateless,
// thread-safe.
#ifndef GAVEL_CORE_CODEC_H_
#define GAVEL_CORE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/messages.h"

namespace gavel {

// Version of the protocol in the header; another one is refused. 0 is none: it
// marks a refusal, see below.
inline constexpr uint8_t kProtocolVersion = 1;
// A frame is at most this long (ROUTER's MAXMSGSIZE).
inline constexpr size_t kFrameBytesMax = 64 * 1024;
// "GVL", the version, the type: the message's index in Message, from 1.
inline constexpr size_t kFrameHeaderBytes = 5;

// Encodes header and body. RESOURCE_EXHAUSTED when the frame would be longer
// than kFrameBytesMax, or a part of it beyond the bounds of core/packer.h (the
// sender pages instead).
absl::StatusOr<std::string> EncodeMessage(const Message& message);

// INVALID_ARGUMENT, naming what is wrong, for anything that is not a frame of
// this protocol; FAILED_PRECONDITION for another protocol version ("the peer
// speaks protocol 2, this is 1; update the older side") and for a peer's
// refusal of ours. Never throws, never reads past the frame, allocates at most
// a small multiple of its size.
absl::StatusOr<Message> DecodeMessage(std::string_view frame);

// What every version answers to a frame of another one, and understands: "GVL",
// 0, the lowest and the highest version that the sender speaks, a byte each,
// and a text for people, of at most kRefusalTextBytesMax. Frozen: it never
// changes (docs/protocol.md).
inline constexpr size_t kRefusalTextBytesMax = 512;
std::string EncodeVersionRefusal();

// "LeaseGrant", for logs and errors.
std::string_view MessageName(const Message& message);

}  // namespace gavel

#endif  // GAVEL_CORE_CODEC_H_
