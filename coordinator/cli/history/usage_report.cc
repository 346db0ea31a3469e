#include "coordinator/cli/history/usage_report.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/table.h"

namespace gavel {
namespace {

constexpr double kHour_s = 3600;

// Hours of [from_s, to_s] within the other two; to_s 0: not over.
double HoursWithin(double from_s, double to_s, double since_s, double until_s) {
  const double end_s = to_s > 0 ? std::min(to_s, until_s) : until_s;
  return std::max(0.0, end_s - std::max(from_s, since_s)) / kHour_s;
}

// A lease is alone on its accelerator but for those of other jobs there at the
// same time: of a pair each counts half while both run.
class Sharing {
 public:
  explicit Sharing(const Json& leases) {
    for (const Json& lease : leases) {
      by_place_[PlaceOf(lease)].push_back(&lease);
    }
  }

  double Hours(const Json& lease, double since_s, double until_s) const {
    const double from_s = std::max(since_s, lease.value("from_s", 0.0));
    const double to_s = EndOf(lease, until_s);
    double hours = HoursWithin(from_s, to_s, since_s, until_s);
    for (const Json* other : by_place_.at(PlaceOf(lease))) {
      if (other->value("job", uint64_t{0}) == lease.value("job", uint64_t{0})) {
        continue;
      }
      const double begin_s = std::max(from_s, other->value("from_s", 0.0));
      const double end_s = std::min(to_s, EndOf(*other, until_s));
      if (end_s > begin_s) hours -= (end_s - begin_s) / kHour_s / 2;
    }
    return std::max(0.0, hours);
  }

 private:
  using Place = std::pair<std::string, std::string>;
  static Place PlaceOf(const Json& lease) {
    return {lease.value("server", ""), lease.value("uuid", "")};
  }
  static double EndOf(const Json& lease, double until_s) {
    const double to_s = lease.value("to_s", 0.0);
    return to_s > 0 ? std::min(to_s, until_s) : until_s;
  }

  std::map<Place, std::vector<const Json*>> by_place_;
};

}  // namespace

std::map<std::string, UserUsage> UsageOf(const UsageHistory& history,
                                         double since_s, double until_s) {
  std::map<std::string, UserUsage> usage;
  std::map<uint64_t, std::string> users;
  for (const Json& job : history.jobs) {
    users[job.value("job", uint64_t{0})] = job.value("user", "");
  }
  const Sharing sharing(history.leases);
  for (const Json& lease : history.leases) {
    const double hours = sharing.Hours(lease, since_s, until_s);
    if (hours <= 0) continue;
    UserUsage& user = usage[users[lease.value("job", uint64_t{0})]];
    user.used_h += hours;
    user.used_h_by_type[lease.value("type", "")] += hours;
  }
  for (size_t i = 0; i < history.shares.size(); ++i) {
    const Json& row = history.shares[i];
    const double from_s = row.value("from_s", 0.0);
    double to_s = row.value("to_s", 0.0);
    if (i + 1 < history.shares.size()) {
      to_s = std::min(to_s, history.shares[i + 1].value("from_s", to_s));
    }
    const double hours = HoursWithin(from_s, to_s, since_s, until_s);
    const Json entitled = row.value("entitled", Json::object());
    for (const auto& [user, accelerators] : entitled.items()) {
      if (hours <= 0 || !accelerators.is_number()) continue;
      usage[user].entitled_h += hours * accelerators.get<double>();
    }
  }
  return usage;
}

std::string RenderUsage(const std::map<std::string, UserUsage>& usage,
                        size_t width) {
  TableRows rows;
  UserUsage all;
  const auto cells = [](const std::string& name, const UserUsage& user) {
    std::vector<std::string> types;
    for (const auto& [type, hours] : user.used_h_by_type) {
      types.push_back(absl::StrFormat("%s %.2f", type, hours));
    }
    return std::vector<std::string>{
        name, absl::StrFormat("%.2f", user.used_h),
        absl::StrFormat("%.2f", user.entitled_h),
        user.entitled_h > 0
            ? absl::StrFormat("%.0f %%", 100 * user.used_h / user.entitled_h)
            : "-",
        absl::StrJoin(types, ", ")};
  };
  for (const auto& [name, user] : usage) {
    rows.push_back(cells(name.empty() ? "-" : name, user));
    all.used_h += user.used_h;
    all.entitled_h += user.entitled_h;
    for (const auto& [type, hours] : user.used_h_by_type) {
      all.used_h_by_type[type] += hours;
    }
  }
  if (rows.size() > 1) rows.push_back(cells("all", all));
  return RenderTable({Left("USER", 24), Right("USED H"), Right("ENTITLED H"),
                      Right("USED"), Left("BY TYPE")},
                     rows, width);
}

Json UsageJson(const std::map<std::string, UserUsage>& usage, double since_s,
               double until_s) {
  Json users = Json::array();
  for (const auto& [name, user] : usage) {
    users.push_back({{"user", name},
                     {"used_h", user.used_h},
                     {"entitled_h", user.entitled_h},
                     {"used_h_by_type", user.used_h_by_type}});
  }
  return {
      {"since_s", since_s}, {"until_s", until_s}, {"users", std::move(users)}};
}

}  // namespace gavel
