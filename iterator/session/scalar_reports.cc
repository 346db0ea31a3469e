#include "iterator/session/scalar_reports.h"

#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

constexpr int64_t kTensorReadInterval_ns = 500'000'000;

}  // namespace

ScalarReports::~ScalarReports() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status ScalarReports::Open() {
  const std::string& path = context_.options.report_file;
  if (path.empty()) return absl::OkStatus();
  file_ = std::fopen(path.c_str(), "ae");
  if (file_ != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("GAVEL_REPORT_FILE: ", path,
             " can't be opened for writing; give a path that can"));
}

void ScalarReports::Report(std::string_view name, double value) {
  if (!context_.stats.scalars().Set(name, value) && !refused_) {
    refused_ = true;
    context_.log.Warning(
        StrCat("'", name, "' is not sent to the coordinator: at most ",
               ScalarSlots::kCountMax, " names of 1 to ",
               ScalarSlots::kNameLengthMax, " characters are"));
  }
  const uint64_t steps_done = context_.stats.steps_done();
  context_.Warn(context_.profile.Report(name, steps_done, value));
  if (file_ != nullptr) {
    // Hexadecimal, so that two runs can be compared bit by bit.
    std::fprintf(file_, "%llu %.*s %a\n",
                 static_cast<unsigned long long>(steps_done),
                 static_cast<int>(name.size()), name.data(), value);
    std::fflush(file_);
  }
}

void ScalarReports::ReportTensor(std::string_view name,
                                 const at::Tensor& scalar) {
  if (!scalar.defined() || scalar.numel() != 1 || scalar.is_complex()) {
    if (std::exchange(not_scalar_, true)) return;
    return context_.log.Warning(StrCat(
        "'", name, "' is not reported: the tensor has ",
        scalar.defined() ? StrCat(scalar.numel(), " elements") : "no value",
        ", and a scalar has one real number; report its mean(), or each "
        "element under a name of its own"));
  }
  absl::Status status = CatchAsStatus("reporting a tensor", [&] {
    if (!scalar.device().is_cpu()) {
      const int64_t now_ns = Now_ns();
      if (file_ == nullptr &&
          now_ns < last_tensor_read_ns_ + kTensorReadInterval_ns) {
        return absl::OkStatus();
      }
      last_tensor_read_ns_ = now_ns;
    }
    Report(name, scalar.detach().item().toDouble());
    return absl::OkStatus();
  });
  if (!status.ok()) context_.Fail(Annotate(status, name));
}

}  // namespace gavel::internal
