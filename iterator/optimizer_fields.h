// The visitors of an optimizer's options and state: one that lists names, one
// that lists tensors, one that saves and one that restores. Called by
// optimizer_state.cc.
#ifndef GAVEL_ITERATOR_OPTIMIZER_FIELDS_H_
#define GAVEL_ITERATOR_OPTIMIZER_FIELDS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "gavel/optimizer_kind.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

// A number (or text) of whichever type, and as text that gives the same back.
using NumberRef = std::variant<int64_t*, double*, bool*, std::string*>;
std::string ToText(NumberRef value);
// False, and nothing changes: not of this type.
bool FromText(const std::string& text, NumberRef value);

// What all but the names have in common: a list is its length and its tensors.
class EachField : public OptimizerFields {
 public:
  // The first error of a field.
  const absl::Status& status() const { return status_; }

  void operator()(const std::string& name, at::Tensor& value) override {
    Tensor(name, value);
  }
  void operator()(const std::string& name,
                  std::vector<at::Tensor>& value) override;
  void operator()(const std::string& name, int64_t& value) override {
    Number(name, &value);
  }
  void operator()(const std::string& name, double& value) override {
    Number(name, &value);
  }
  void operator()(const std::string& name, bool& value) override {
    Number(name, &value);
  }
  void operator()(const std::string& name, std::string& value) override {
    Number(name, &value);
  }

 protected:
  ~EachField() = default;
  void Fail(const absl::Status& status) { status_.Update(status); }

 private:
  virtual void Number(const std::string& name, NumberRef value) = 0;
  virtual void Tensor(const std::string& name, at::Tensor& value) = 0;

  absl::Status status_;
};

// Names and types, as "NAME TYPE" with TYPE one of tensor, tensors, int64,
// double, bool and text.
class ListFieldNames final : public OptimizerFields {
 public:
  void operator()(const std::string& name, at::Tensor&) override {
    Add(name, "tensor");
  }
  void operator()(const std::string& name, std::vector<at::Tensor>&) override {
    Add(name, "tensors");
  }
  void operator()(const std::string& name, int64_t&) override {
    Add(name, "int64");
  }
  void operator()(const std::string& name, double&) override {
    Add(name, "double");
  }
  void operator()(const std::string& name, bool&) override {
    Add(name, "bool");
  }
  void operator()(const std::string& name, std::string&) override {
    Add(name, "text");
  }

  const std::vector<std::string>& fields() const { return fields_; }
  // INVALID_ARGUMENT: the first name that is none, or is there twice.
  const absl::Status& status() const { return status_; }

 private:
  void Add(const std::string& name, const char* type);

  std::set<std::string> names_;
  std::vector<std::string> fields_;
  absl::Status status_;
};

class ListFieldTensors final : public EachField {
 public:
  explicit ListFieldTensors(std::vector<at::Tensor>* tensors)
      : tensors_(tensors) {}

 private:
  void Number(const std::string&, NumberRef) override {}
  void Tensor(const std::string&, at::Tensor& value) override {
    if (value.defined()) tensors_->push_back(value);
  }
  std::vector<at::Tensor>* tensors_;
};

// A parameter of which this rank has a part. Its state is of its shape, or it
// is a number, the same on all ranks.
struct PartedParameter {
  OwnPart part;
  at::Tensor parameter;
};

// Names in the snapshot are `prefix` and the field's. With `lines`, numbers are
// appended to that as "NAME NUMBER\n". With `parted`, tensors are parts, too.
class SaveFields final : public EachField {
 public:
  SaveFields(std::string prefix, Snapshot* snapshot,
             std::string* lines = nullptr,
             const PartedParameter* parted = nullptr)
      : prefix_(std::move(prefix)),
        snapshot_(snapshot),
        lines_(lines),
        parted_(parted) {}

 private:
  void Number(const std::string& name, NumberRef value) override;
  void Tensor(const std::string& name, at::Tensor& value) override;

  std::string prefix_;
  Snapshot* snapshot_;
  std::string* lines_;
  const PartedParameter* parted_;
};

using TensorIndex = std::map<std::string_view, const at::Tensor*>;
using FieldLines = std::map<std::string, std::string>;
FieldLines ParseLines(const std::string& text);

struct RestoredFrom {
  const Snapshot& snapshot;
  const TensorIndex& tensors;  // of `snapshot`
  at::Device device;           // where tensors go
  // Null: the tensors have any shape.
  const at::Tensor* like = nullptr;
  // Not null: what is stored in parts gives this one.
  const OwnPart* part = nullptr;
  // Null: every number is an entry of its own. Else they are in these lines of
  // the entry `lines_name`.
  const FieldLines* lines = nullptr;
  std::string_view lines_name = {};
};

class RestoreFields final : public EachField {
 public:
  RestoreFields(std::string prefix, const RestoredFrom& from)
      : prefix_(std::move(prefix)), from_(from) {}

 private:
  void Number(const std::string& name, NumberRef value) override;
  void Tensor(const std::string& name, at::Tensor& value) override;
  const std::string* FindText(const std::string& name) const;

  std::string prefix_;
  RestoredFrom from_;
};

// DATA_LOSS.
absl::Status UnreadableEntry(std::string_view name);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_OPTIMIZER_FIELDS_H_
