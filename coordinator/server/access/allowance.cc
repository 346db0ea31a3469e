#include "coordinator/server/access/allowance.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/text.h"

namespace gavel {

absl::Status CheckWeight(std::string_view what, double weight,
                         const WeightBounds& bounds) {
  if (weight >= bounds.min && weight <= bounds.max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(what, ": weight ", weight, " is not between ", bounds.min, " and ",
             bounds.max,
             "; choose another, or ask an operator for other bounds "
             "(--weight-min and --weight-max of the coordinator)"));
}

absl::Status CheckAllowance(std::string_view what, const Allowance& allowance,
                            double weight, std::string* entity) {
  if (weight > allowance.weight_max) {
    return absl::PermissionDeniedError(
        StrCat(what, ": weight ", weight, " exceeds your largest, ",
               allowance.weight_max,
               "; lower it, or ask an operator for a higher weight_max"));
  }
  const std::vector<std::string>& entities = allowance.entities;
  if (entity->empty()) {
    if (!entities.empty()) *entity = entities.front();
    return absl::OkStatus();
  }
  if (std::ranges::find(entities, *entity) != entities.end()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(StrCat(
      what, ": you may not submit for entity \"", *entity, "\"; ",
      entities.empty() ? "leave it out"
                       : StrCat("choose ", absl::StrJoin(entities, " or ")),
      ", or ask an operator to name it among your entities"));
}

}  // namespace gavel
