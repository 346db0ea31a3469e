#include "iterator/optimizer_fields.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/text.h"
#include "iterator/tensor_entry.h"

namespace gavel::internal {
namespace {

constexpr int64_t kListLengthMax = 1 << 20;
constexpr size_t kNameLengthMax = 64;

// %.17g gives the same double back.
std::string TextOf(double value) { return absl::StrFormat("%.17g", value); }
std::string TextOf(int64_t value) { return StrCat(value); }
std::string TextOf(bool value) { return value ? "true" : "false"; }
std::string TextOf(const std::string& value) { return absl::CEscape(value); }

bool Parse(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}
bool Parse(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool Parse(const std::string& text, bool* value) {
  *value = text == "true";
  return text == "true" || text == "false";
}
bool Parse(const std::string& text, std::string* value) {
  return absl::CUnescape(text, value);
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kNameLengthMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '_' || c == '.';
         });
}

}  // namespace

std::string ToText(NumberRef value) {
  return std::visit([](const auto* number) { return TextOf(*number); }, value);
}

bool FromText(const std::string& text, NumberRef value) {
  return std::visit(
      [&text](auto* number) {
        auto parsed = *number;
        if (!Parse(text, &parsed)) return false;
        *number = std::move(parsed);
        return true;
      },
      value);
}

void EachField::operator()(const std::string& name,
                           std::vector<at::Tensor>& value) {
  auto count = static_cast<int64_t>(value.size());
  Number(StrCat(name, "/count"), &count);
  if (count < 0 || count > kListLengthMax) {
    return Fail(absl::OutOfRangeError(StrCat("the list '", name, "' has ",
                                             count, " tensors; at most ",
                                             kListLengthMax, " are possible")));
  }
  value.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < value.size(); ++i) {
    Tensor(StrCat(name, "/", i), value[i]);
  }
}

void ListFieldNames::Add(const std::string& name, const char* type) {
  if (!IsName(name)) {
    status_.Update(absl::InvalidArgumentError(StrCat(
        "'", name, "' is no name of a field; use 1 to 64 of A-Z a-z 0-9 _ .")));
  }
  if (!names_.insert(name).second) {
    status_.Update(absl::InvalidArgumentError(StrCat(
        "the field '", name, "' is there twice; give each its own name")));
  }
  fields_.push_back(StrCat(name, " ", type));
}

void SaveFields::Number(const std::string& name, NumberRef value) {
  if (lines_ != nullptr) {
    StrAppend(lines_, name, " ", ToText(value), "\n");
  } else {
    snapshot_->bytes[StrCat(prefix_, name)] = ToText(value);
  }
}

void SaveFields::Tensor(const std::string& name, at::Tensor& value) {
  if (!value.defined()) return;
  const std::string full_name = StrCat(prefix_, name);
  if (value.layout() != at::kStrided) {
    return Fail(CollectTensor(full_name, value, std::nullopt, snapshot_));
  }
  if (parted_ != nullptr && value.numel() != 1) {
    if (value.sizes() != parted_->parameter.sizes()) {
      return Fail(absl::FailedPreconditionError(StrCat(
          "'", full_name, "' has another shape than its parameter, which is ",
          "sharded over workers; state of such a parameter is of its shape")));
    }
    snapshot_->partitions[full_name] = parted_->part.partition;
  }
  snapshot_->tensors.emplace_back(full_name, value);
}

FieldLines ParseLines(const std::string& text) {
  FieldLines lines;
  for (const auto line : absl::StrSplit(text, '\n')) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    lines.insert(words);
  }
  return lines;
}

const std::string* RestoreFields::FindText(const std::string& name) const {
  if (from_.lines != nullptr) {
    const auto line = from_.lines->find(name);
    return line == from_.lines->end() ? nullptr : &line->second;
  }
  const auto entry = from_.snapshot.bytes.find(StrCat(prefix_, name));
  return entry == from_.snapshot.bytes.end() ? nullptr : &entry->second;
}

void RestoreFields::Number(const std::string& name, NumberRef value) {
  const std::string* const text = FindText(name);
  if (text != nullptr && FromText(*text, value)) return;
  Fail(UnreadableEntry(from_.lines == nullptr ? StrCat(prefix_, name)
                                              : std::string(from_.lines_name)));
}

void RestoreFields::Tensor(const std::string& name, at::Tensor& value) {
  const std::string full_name = StrCat(prefix_, name);
  if (from_.snapshot.bytes.contains(StrCat(full_name, "/layout"))) {
    at::Tensor made;
    Fail(RestoreTensor(from_.snapshot, full_name, std::nullopt, made));
    if (made.defined()) value = made.to(from_.device);
    return;
  }
  const auto whole = from_.tensors.find(full_name);
  const auto parts = from_.snapshot.parts.find(full_name);
  const bool is_number =
      whole != from_.tensors.end() && whole->second->numel() == 1;
  const absl::StatusOr<at::Tensor> found = TakePart(
      full_name, whole == from_.tensors.end() ? nullptr : whole->second,
      parts == from_.snapshot.parts.end() ? nullptr : &parts->second,
      is_number ? nullptr : from_.part);
  if (!found.ok()) return Fail(found.status());
  const at::Tensor& saved = *found;
  if (!saved.defined()) {
    value = at::Tensor();
    return;
  }
  if (from_.like != nullptr && saved.sizes() != from_.like->sizes()) {
    return Fail(absl::FailedPreconditionError(StrCat(
        "'", full_name, "' has ", saved.numel(),
        " elements or another shape than its parameter, which has ",
        from_.like->numel(),
        "; restore into the model that was saved, and track what is sharded "
        "over workers before its optimizer")));
  }
  value = saved.to(from_.device, saved.scalar_type(), /*non_blocking=*/false,
                   /*copy=*/true);
}

absl::Status UnreadableEntry(std::string_view name) {
  return absl::DataLossError(
      StrCat("checkpoint entry '", name, "' is missing or not readable"));
}

}  // namespace gavel::internal
