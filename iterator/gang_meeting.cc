#include "iterator/gang_meeting.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::internal {
namespace {

// What a rank says of its state.
struct Here {
  std::string steps_done;
  std::string divided;  // fingerprint
  bool is_missing = false;
};

absl::StatusOr<Here> ParseHere(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  if (parts.size() != 3) {
    return absl::InternalError(
        StrCat("'", text, "' is not what a rank says of its state"));
  }
  return Here{parts[0], parts[1], !parts[2].empty()};
}

absl::Status CompareSteps(const GangPlan& plan, const std::vector<Here>& all) {
  if (all[static_cast<size_t>(plan.rank)].steps_done != all[0].steps_done) {
    return absl::AbortedError(StrCat("this rank is at step ", plan.steps_done,
                                     ", rank 0 at ", all[0].steps_done));
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].steps_done == all[0].steps_done) continue;
    return absl::UnavailableError(
        StrCat("rank ", rank, " is at step ", all[rank].steps_done,
               ", this one at ", plan.steps_done, "; it has to begin again"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string TextOfState(const GangPlan& plan) {
  if (plan.divided == nullptr) return StrCat(plan.steps_done, ",,");
  return StrCat(plan.steps_done, ",", plan.divided->Fingerprint(), ",",
                plan.divided->is_missing() ? "missing" : "");
}

absl::StatusOr<bool> CompareStates(const GangPlan& plan,
                                   const std::vector<std::string>& texts) {
  std::vector<Here> all;
  for (const std::string& text : texts) {
    GAVEL_ASSIGN_OR_RETURN(all.emplace_back(), ParseHere(text));
  }
  GAVEL_RETURN_IF_ERROR(CompareSteps(plan, all));
  const bool is_missing = std::ranges::any_of(all, &Here::is_missing);
  const bool is_same = std::ranges::all_of(all, [&](const Here& here) {
    return !here.divided.empty() && here.divided == all[0].divided;
  });
  if (!is_missing || is_same) return is_missing;
  const std::string why =
      "a rank began again while the others' state was divided among them";
  return all[static_cast<size_t>(plan.rank)].is_missing
             ? absl::AbortedError(why)
             : absl::UnavailableError(why);
}

}  // namespace gavel::internal
