// The scalars of Session::Report(): to the coordinator, TensorBoard and the
// report file. Training thread only.
#ifndef GAVEL_ITERATOR_SESSION_SCALAR_REPORTS_H_
#define GAVEL_ITERATOR_SESSION_SCALAR_REPORTS_H_

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "absl/status/status.h"
#include "iterator/session/session_context.h"

namespace gavel::internal {

class ScalarReports {
 public:
  // Borrows `context`, which must live longer.
  explicit ScalarReports(SessionContext& context) : context_(context) {}
  ~ScalarReports();
  ScalarReports(const ScalarReports&) = delete;
  ScalarReports& operator=(const ScalarReports&) = delete;

  // Opens the report file, if there is one. INVALID_ARGUMENT: it can't be
  // written.
  absl::Status Open();
  void Report(std::string_view name, double value);
  // A tensor on a GPU is read twice a second at most, as reading waits for the
  // device; with a report file always. One that is no scalar is left out.
  void ReportTensor(std::string_view name, const at::Tensor& scalar);

 private:
  SessionContext& context_;
  std::FILE* file_ = nullptr;
  int64_t last_tensor_read_ns_ = 0;
  bool refused_ = false;
  bool not_scalar_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_SCALAR_REPORTS_H_
