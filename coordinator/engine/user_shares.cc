#include "coordinator/engine/user_shares.h"

namespace gavel {
namespace {

bool Counts(const Job& job) { return job.active() && !job.spec.owner.empty(); }

}  // namespace

std::vector<Job*> UserShares::Update(const absl::btree_map<JobId, Job*>& live) {
  absl::btree_map<Key, Share> shares;
  for (const auto& [id, job] : live) {
    if (!Counts(*job)) continue;
    Share& share = shares[{job->spec.owner, job->spec.entity}];
    share.weight = job->spec.owner_weight;
    share.sum += job->spec.weight;
  }
  shares.swap(shares_);
  std::vector<Job*> changed;
  for (const auto& [id, job] : live) {
    if (!Counts(*job)) continue;
    const Key key{job->spec.owner, job->spec.entity};
    const auto before = shares.find(key);
    if (before == shares.end() || before->second != shares_.at(key)) {
      changed.push_back(job);
    }
  }
  return changed;
}

double UserShares::WeightOf(const Job& job) const {
  const auto share = shares_.find({job.spec.owner, job.spec.entity});
  if (!Counts(job) || share == shares_.end()) return job.spec.weight;
  return share->second.weight * job.spec.weight / share->second.sum;
}

}  // namespace gavel
