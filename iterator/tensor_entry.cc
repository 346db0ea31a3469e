#include "iterator/tensor_entry.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/sparse_csr_tensor.h>

#include <sstream>
#include <vector>

#include "core/status.h"
#include "core/text.h"

namespace gavel::internal {
namespace {

constexpr char kRemedy[] =
    "; restore with the model that wrote it, or start in an empty checkpoint "
    "directory";

std::string ShapeOf(const at::Tensor& tensor) {
  std::string shape = StrCat(c10::toString(tensor.scalar_type()), "[");
  for (const int64_t size : tensor.sizes()) StrAppend(&shape, size, ",");
  if (shape.back() == ',') shape.pop_back();
  return shape + "]";
}

// Empty: dense.
std::string LayoutText(const at::Tensor& tensor) {
  std::string text;
  if (tensor.layout() == at::kSparse) {
    text = tensor.is_coalesced() ? "coalesced coo" : "coo";
  } else if (tensor.layout() == at::kSparseCsr) {
    text = "csr";
  } else {
    return text;
  }
  for (const int64_t size : tensor.sizes()) StrAppend(&text, " ", size);
  return text;
}

std::vector<int64_t> SizesOf(const std::string& layout) {
  std::istringstream words(
      layout.substr(layout.find_last_not_of("0123456789 ") + 1));
  std::vector<int64_t> sizes;
  for (int64_t size = 0; words >> size;) sizes.push_back(size);
  return sizes;
}

absl::Status Missing(const std::string& name) {
  return absl::FailedPreconditionError(
      StrCat("the checkpoint has no tensor '", name, "'", kRemedy,
             ", or set SessionOptions::partial_restore "
             "(GAVEL_PARTIAL_RESTORE=1) to keep the program's"));
}

absl::Status CheckSame(const std::string& name, const std::string& here,
                       const std::string& saved) {
  if (here == saved) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("tensor '", name, "' is ", here,
                                              " here and ", saved,
                                              " in the checkpoint", kRemedy));
}

absl::Status RestoreDense(const Snapshot& snapshot, const std::string& name,
                          const std::optional<OwnPart>& part,
                          at::Tensor& tensor) {
  GAVEL_ASSIGN_OR_RETURN(const at::Tensor saved,
                         FindPart(snapshot, name, part ? &*part : nullptr));
  if (!tensor.defined()) {
    if (saved.defined()) tensor = saved.clone();
    return absl::OkStatus();
  }
  if (!saved.defined()) return Missing(name);
  GAVEL_RETURN_IF_ERROR(CheckSame(name, ShapeOf(tensor), ShapeOf(saved)));
  at::NoGradGuard no_grad;
  // A view made by expand() has each value once in memory.
  at::Tensor to = tensor.detach();
  at::Tensor from = saved;
  bool is_expanded = false;
  for (int64_t dim = 0; dim < to.dim(); ++dim) {
    if (to.stride(dim) != 0 || to.size(dim) < 2) continue;
    is_expanded = true;
    to = to.narrow(dim, 0, 1);
    from = from.narrow(dim, 0, 1);
  }
  // With no tolerance: whether all are equal, NaN too.
  if (is_expanded && !at::allclose(saved, from.expand_as(saved), 0, 0,
                                   /*equal_nan=*/true)) {
    return absl::FailedPreconditionError(
        StrCat("tensor '", name,
               "' was made by expand() here, and its rows differ in the "
               "checkpoint; make it contiguous()",
               kRemedy));
  }
  to.copy_(from);
  return absl::OkStatus();
}

// As LibTorch makes one of parts, with its checks.
absl::StatusOr<at::Tensor> MakeSparse(const Snapshot& snapshot,
                                      const std::string& name,
                                      const std::string& layout) {
  const bool is_csr = std::string_view(layout).starts_with("csr");
  std::vector<at::Tensor> parts;
  for (const char* part :
       is_csr
           ? std::vector<const char*>{"crow_indices", "col_indices", "values"}
           : std::vector<const char*>{"indices", "values"}) {
    const at::Tensor* saved = FindTensor(snapshot, StrCat(name, "/", part));
    if (saved == nullptr) return Missing(StrCat(name, "/", part));
    parts.push_back(saved->clone());
  }
  const std::vector<int64_t> sizes = SizesOf(layout);
  const at::TensorOptions options = parts.back().options();
  if (is_csr) {
    return at::sparse_csr_tensor(parts[0], parts[1], parts[2], sizes,
                                 options.layout(at::kSparseCsr));
  }
  at::Tensor made = at::sparse_coo_tensor(parts[0], parts[1], sizes,
                                          options.layout(at::kSparse));
  made._coalesced_(std::string_view(layout).starts_with("coalesced"));
  return made;
}

absl::Status RestoreSparse(const Snapshot& snapshot, const std::string& name,
                           const std::string& layout, at::Tensor& tensor) {
  GAVEL_ASSIGN_OR_RETURN(at::Tensor made, MakeSparse(snapshot, name, layout));
  if (!tensor.defined()) {
    tensor = made;
    return absl::OkStatus();
  }
  const auto kind = [](const at::Tensor& one) {
    return StrCat(c10::str(one.layout()), " ", ShapeOf(one));
  };
  GAVEL_RETURN_IF_ERROR(CheckSame(name, kind(tensor), kind(made)));
  at::NoGradGuard no_grad;
  made = made.to(tensor.device());
  if (made.layout() == at::kSparse) {
    tensor.set_data(made);
  } else {
    tensor.resize_as_sparse_(made);
    tensor.copy_(made);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CollectTensor(const std::string& name, const at::Tensor& tensor,
                           const std::optional<OwnPart>& part,
                           Snapshot* snapshot) {
  if (!tensor.defined()) return absl::OkStatus();
  const at::Tensor source = tensor.detach();
  const auto add = [&](const char* piece, const at::Tensor& of) {
    snapshot->tensors.emplace_back(StrCat(name, "/", piece), of);
  };
  if (source.layout() == at::kSparse) {
    add("indices", source._indices());
    add("values", source._values());
  } else if (source.layout() == at::kSparseCsr) {
    add("crow_indices", source.crow_indices());
    add("col_indices", source.col_indices());
    add("values", source.values());
  } else if (source.layout() == at::kStrided) {
    snapshot->tensors.emplace_back(name, source);
    if (part) snapshot->partitions[name] = part->partition;
    return absl::OkStatus();
  } else {
    return absl::UnimplementedError(
        StrCat("tensor '", name, "' has the layout ", c10::str(source.layout()),
               ", which is not checkpointed; use a dense, COO or CSR tensor"));
  }
  snapshot->bytes[StrCat(name, "/layout")] = LayoutText(source);
  return absl::OkStatus();
}

bool HasTensor(const Snapshot& snapshot, const std::string& name) {
  return FindTensor(snapshot, name) != nullptr ||
         snapshot.parts.contains(name) ||
         snapshot.bytes.contains(StrCat(name, "/layout"));
}

absl::Status RestoreTensor(const Snapshot& snapshot, const std::string& name,
                           const std::optional<OwnPart>& part,
                           at::Tensor& tensor) {
  const auto layout = snapshot.bytes.find(StrCat(name, "/layout"));
  if (layout != snapshot.bytes.end()) {
    return RestoreSparse(snapshot, name, layout->second, tensor);
  }
  if (tensor.defined() && tensor.layout() != at::kStrided &&
      FindTensor(snapshot, name) != nullptr) {
    return CheckSame(name, c10::str(tensor.layout()), "dense");
  }
  return RestoreDense(snapshot, name, part, tensor);
}

void ReplaceCsr(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.layout() != at::kSparseCsr) return;
  tensor = tensor.to(device);
}

absl::Status CheckNoCsr(const std::string& name,
                        const std::vector<at::Tensor>& tensors,
                        at::Device device) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kSparseCsr) continue;
    if (tensor.device() == device) continue;
    return absl::UnimplementedError(StrCat(
        "'", name, "' has a CSR tensor, which can't be moved to ", device.str(),
        " in place; keep it in an at::Tensor of its own and track that, "
        "or make it COO"));
  }
  return absl::OkStatus();
}

}  // namespace gavel::internal
