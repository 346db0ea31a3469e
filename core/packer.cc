#include "core/packer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <exception>
#include <utility>
#include <vector>

#include "core/text.h"
#include "msgpack.hpp"

namespace gavel {
namespace {

// The stream interface that msgpack::packer requires.
struct Appender {
  std::string& bytes;
  void write(const char* data, size_t size) { bytes.append(data, size); }
};

msgpack::packer<Appender> PackTo(Appender& appender) {
  return msgpack::packer<Appender>(appender);
}

// Strings are not copied out of the input, which the Unpacker borrows anyway.
bool KeepInPlace(msgpack::type::object_type, size_t, void*) { return true; }

// msgpack reserves an array's elements as soon as it has read their number. The
// number is therefore limited to what the bytes can contain (one byte per
// element).
msgpack::unpack_limit Bounds(size_t bytes, const PackLimits& limits) {
  return msgpack::unpack_limit(std::min(limits.array_elements, bytes),
                               /*map=*/0, limits.string_bytes, /*bin=*/0,
                               /*ext=*/0, kArrayDepthMax);
}

std::string_view TypeName(msgpack::type::object_type type) {
  switch (type) {
    case msgpack::type::NIL:
      return "nil";
    case msgpack::type::BOOLEAN:
      return "a boolean";
    case msgpack::type::POSITIVE_INTEGER:
      return "an integer";
    case msgpack::type::NEGATIVE_INTEGER:
      return "a negative integer";
    case msgpack::type::FLOAT32:
      return "a 32-bit float";
    case msgpack::type::FLOAT64:
      return "a 64-bit float";
    case msgpack::type::STR:
      return "a string";
    case msgpack::type::ARRAY:
      return "an array";
    default:
      return "of a type that this protocol does not use";
  }
}

}  // namespace

void Packer::Array(size_t elements) {
  if (elements > limits_.array_elements) {
    status_.Update(absl::ResourceExhaustedError(
        StrCat("an array of ", elements, " elements exceeds the ",
               limits_.array_elements, " allowed; send it in parts")));
    return;
  }
  Appender appender{bytes_};
  PackTo(appender).pack_array(static_cast<uint32_t>(elements));
}

void Packer::Put(uint64_t value) {
  Appender appender{bytes_};
  PackTo(appender).pack_uint64(value);
}

void Packer::Put(int64_t value) {
  Appender appender{bytes_};
  PackTo(appender).pack_int64(value);
}

void Packer::Put(bool value) {
  Appender appender{bytes_};
  value ? PackTo(appender).pack_true() : PackTo(appender).pack_false();
}

// Not pack_double(): it turns whole numbers into integers, which loses the sign
// of -0.0.
void Packer::Put(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  bytes_.push_back('\xcb');
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes_.push_back(static_cast<char>(bits >> shift & 0xff));
  }
}

void Packer::Put(std::string_view value) {
  if (value.size() > limits_.string_bytes) {
    status_.Update(absl::ResourceExhaustedError(
        StrCat("a string of ", value.size(), " bytes exceeds the ",
               limits_.string_bytes, " allowed; send it in parts")));
    return;
  }
  Appender appender{bytes_};
  const auto size = static_cast<uint32_t>(value.size());
  PackTo(appender).pack_str(size).pack_str_body(value.data(), size);
}

std::string Packer::Take() { return std::exchange(bytes_, std::string()); }

struct Unpacker::Parsed {
  // One array being read. All pointers are null if the field is not there.
  struct Level {
    const msgpack::object* begin = nullptr;
    const msgpack::object* next = nullptr;
    const msgpack::object* end = nullptr;
  };

  // Returns how many bytes were read. Throws the exceptions of msgpack.
  size_t Parse(std::string_view bytes, const PackLimits& limits) {
    size_t offset = 0;
    root = msgpack::unpack(bytes.data(), bytes.size(), offset, KeepInPlace,
                           nullptr, Bounds(bytes.size(), limits));
    return offset;
  }
  // Returns the next field of the present array; null at its end.
  const msgpack::object* Next() {
    Level& level = levels.back();
    return level.next == level.end ? nullptr : level.next++;
  }
  bool LeavesFields() const { return levels.back().next != levels.back().end; }
  const msgpack::object& last() const { return levels.back().next[-1]; }
  void Push(const msgpack::object_array& array) {
    levels.push_back({array.ptr, array.ptr, array.ptr + array.size});
  }
  // Returns the position of the field last read, for instance "3.1": the
  // positions in each array, from the outermost one inwards.
  std::string Path() const {
    std::string path;
    for (const Level& level : levels) {
      StrAppend(&path, path.empty() ? "" : ".", level.next - level.begin);
    }
    return path;
  }

  msgpack::object_handle root;
  std::vector<Level> levels;
};

Unpacker::Unpacker(std::string_view bytes, PackLimits limits)
    : parsed_(std::make_unique<Parsed>()) {
  try {
    const size_t read = parsed_->Parse(bytes, limits);
    if (read != bytes.size()) {
      status_ = absl::InvalidArgumentError(
          StrCat(bytes.size() - read, " bytes behind the array"));
    } else if (parsed_->root.get().type != msgpack::type::ARRAY) {
      status_ = absl::InvalidArgumentError(
          StrCat("not an array but ", TypeName(parsed_->root.get().type)));
    } else {
      parsed_->Push(parsed_->root.get().via.array);
    }
  } catch (const std::exception& error) {  // of msgpack; caught only here
    status_ = absl::InvalidArgumentError(
        StrCat("not within the bounds of msgpack here: ", error.what()));
  }
  if (!ok()) parsed_->levels.assign(1, Parsed::Level{});
}

Unpacker::Unpacker(Unpacker&&) noexcept = default;
Unpacker& Unpacker::operator=(Unpacker&&) noexcept = default;
Unpacker::~Unpacker() = default;

void Unpacker::Get(uint64_t& out) {
  const msgpack::object* field = ok() ? parsed_->Next() : nullptr;
  if (field == nullptr) return;
  if (field->type != msgpack::type::POSITIVE_INTEGER) {
    return Wrong("an integer that is not negative");
  }
  out = field->via.u64;
}

void Unpacker::Get(int64_t& out) {
  const msgpack::object* field = ok() ? parsed_->Next() : nullptr;
  if (field == nullptr) return;
  if (field->type == msgpack::type::NEGATIVE_INTEGER) {
    out = field->via.i64;
  } else if (field->type == msgpack::type::POSITIVE_INTEGER &&
             std::in_range<int64_t>(field->via.u64)) {
    out = static_cast<int64_t>(field->via.u64);
  } else {
    Wrong("an integer of 64 bits");
  }
}

void Unpacker::Get(int& out) {
  int64_t wide = out;
  Get(wide);
  if (!ok()) return;
  if (!std::in_range<int>(wide)) return Fail("is beyond 32 bits");
  out = static_cast<int>(wide);
}

void Unpacker::Get(bool& out) {
  const msgpack::object* field = ok() ? parsed_->Next() : nullptr;
  if (field == nullptr) return;
  if (field->type != msgpack::type::BOOLEAN) return Wrong("a boolean");
  out = field->via.boolean;
}

void Unpacker::Get(double& out) {
  const msgpack::object* field = ok() ? parsed_->Next() : nullptr;
  if (field == nullptr) return;
  if (field->type != msgpack::type::FLOAT64) return Wrong("a 64-bit float");
  out = field->via.f64;
}

void Unpacker::Get(std::string& out) {
  const msgpack::object* field = ok() ? parsed_->Next() : nullptr;
  if (field == nullptr) return;
  if (field->type != msgpack::type::STR) return Wrong("a string");
  out.assign(field->via.str.ptr, field->via.str.size);
}

size_t Unpacker::Enter() {
  const msgpack::object* field = ok() ? parsed_->Next() : nullptr;
  if (field != nullptr && field->type == msgpack::type::ARRAY) {
    parsed_->Push(field->via.array);
    return field->via.array.size;
  }
  if (field != nullptr) Wrong("an array");
  parsed_->levels.emplace_back();
  return 0;
}

void Unpacker::Leave() {
  assert(parsed_->levels.size() > 1);  // pairs with Enter()
  passed_over_ |= parsed_->LeavesFields();
  parsed_->levels.pop_back();
}

bool Unpacker::passed_over() const {
  return passed_over_ || parsed_->LeavesFields();
}

void Unpacker::Wrong(std::string_view expected) {
  Fail(StrCat("is ", TypeName(parsed_->last().type), ", not ", expected));
}

void Unpacker::Fail(std::string_view what) {
  if (!ok()) return;
  status_ =
      absl::InvalidArgumentError(StrCat("field ", parsed_->Path(), " ", what));
}

}  // namespace gavel
