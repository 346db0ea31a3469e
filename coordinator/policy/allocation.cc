#include <algorithm>
#include <cstddef>
#include <utility>

#include "coordinator/policy/policy.h"

namespace gavel {

class Allocation::Form {
 public:
  // Position of `job`, or jobs.size().
  size_t Find(JobId job) const {
    const auto found = std::lower_bound(jobs.begin(), jobs.end(), job);
    if (found == jobs.end() || *found != job) return jobs.size();
    return static_cast<size_t>(found - jobs.begin());
  }

  std::vector<JobId> jobs;     // ascending
  size_t types = 0;            // J
  std::vector<double> shares;  // [jobs x J] row-major
};

Allocation Allocation::FromRows(std::vector<JobId> jobs, size_t types,
                                std::vector<double> shares) {
  shares.resize(jobs.size() * types, 0.0);
  Allocation allocation;
  allocation.form_ = std::make_shared<const Form>(
      Form{std::move(jobs), types, std::move(shares)});
  return allocation;
}

size_t Allocation::types() const { return form_ == nullptr ? 0 : form_->types; }

std::span<const JobId> Allocation::jobs() const {
  if (form_ == nullptr) return {};
  return form_->jobs;
}

bool Allocation::Contains(JobId job) const {
  return form_ != nullptr && form_->Find(job) < form_->jobs.size();
}

std::vector<double> Allocation::Row(JobId job) const {
  if (!Contains(job)) return std::vector<double>(types(), 0.0);
  const double* row = form_->shares.data() + form_->Find(job) * form_->types;
  return std::vector<double>(row, row + form_->types);
}

}  // namespace gavel
