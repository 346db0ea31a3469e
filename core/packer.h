// Writes and reads one msgpack array, field by field, within bounds. The codecs
// of messages (core/codec.cc) and of journal events
// (coordinator/engine/event_codec.cc) are made of it, through the lists of
// fields of core/fields.h.
//
// Of msgpack only arrays, integers, booleans, 64-bit floats, strings and nil
// (in tails that are skipped) are read; maps, bin and ext are refused.
//
// Errors are sticky: after the first one every read gives a default, and
// status() says what went wrong. Neither throws. Not thread-safe; the Unpacker
// borrows its bytes.
#ifndef GAVEL_CORE_PACKER_H_
#define GAVEL_CORE_PACKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gavel {

// Bounds that both keep: elements of any one array, bytes of any one string,
// arrays within arrays.
inline constexpr size_t kArrayElementsMax = 4096;
inline constexpr size_t kStringBytesMax = 60 * 1024;
inline constexpr size_t kArrayDepthMax = 16;

// How large arrays and strings may get. Frames keep to the bounds above; rows
// of the journal, which nobody else writes, may hold a whole allocation.
struct PackLimits {
  size_t array_elements = kArrayElementsMax;
  size_t string_bytes = kStringBytesMax;
};
inline constexpr PackLimits kJournalLimits = {size_t{1} << 28, size_t{1} << 28};

// Appends values; arrays are opened with their number of elements.
class Packer {
 public:
  explicit Packer(PackLimits limits = {}) : limits_(limits) {}
  void Array(size_t elements);
  void Put(uint64_t value);
  void Put(int64_t value);
  void Put(int value) { Put(static_cast<int64_t>(value)); }
  void Put(bool value);
  void Put(double value);  // the bits are kept
  void Put(std::string_view value);
  void Put(const std::string& value) { Put(std::string_view(value)); }
  void Put(const char*) = delete;

  size_t size() const { return bytes_.size(); }
  // RESOURCE_EXHAUSTED once an array or a string was beyond the bounds: an
  // Unpacker would refuse the bytes.
  const absl::Status& status() const { return status_; }
  // The bytes; leaves the Packer empty.
  std::string Take();

 private:
  PackLimits limits_;
  std::string bytes_;
  absl::Status status_;
};

// Reads what a Packer wrote. The whole input is parsed once, by the
// constructor, which enters its outermost array. Status: INVALID_ARGUMENT,
// naming the field by its position ("field 3.1: ...", counted from 1).
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes, PackLimits limits = {});
  Unpacker(Unpacker&&) noexcept;
  Unpacker& operator=(Unpacker&&) noexcept;
  ~Unpacker();

  // Fields of the present array, in order. Past its end they give the value
  // that `out` already has (fields are only appended).
  void Get(uint64_t& out);
  void Get(int64_t& out);
  void Get(int& out);
  void Get(bool& out);
  void Get(double& out);
  void Get(std::string& out);
  // Enters the array that is the next field; Leave() goes on behind it,
  // whatever was left unread in it. Returns its number of elements, 0 when
  // there is no such field. The two pair up after an error too.
  size_t Enter();
  void Leave();
  // Whether something was left unread in an array that was left, or in the
  // outermost one: fields that this version does not know.
  bool passed_over() const;
  // Records an error of the caller's own about the field just read.
  void Fail(std::string_view what);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  struct Parsed;  // keeps msgpack.hpp out of this header
  void Wrong(std::string_view expected);

  std::unique_ptr<Parsed> parsed_;
  bool passed_over_ = false;
  absl::Status status_;
};

}  // namespace gavel

#endif  // GAVEL_CORE_PACKER_H_
