#include "coordinator/cli/daemon/progress.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/cli/table.h"
#include "coordinator/server/query/row_json.h"
#include "core/text.h"

namespace gavel {
namespace {

std::string PlaceOf(const QueueRow& row) {
  std::string place;
  for (const HeldAcceleratorRow& accelerator : row.accelerators) {
    StrAppend(&place, place.empty() ? " on " : ", ", accelerator.uuid, " (",
              accelerator.type, ")");
  }
  return place;
}

std::map<std::string, double> ByName(const Named<double>& scalars) {
  return {scalars.begin(), scalars.end()};
}

std::string LineOf(Time at, const QueueRow& row) {
  std::string line =
      absl::StrFormat("[%7.1f s] job %d %s: ", at, row.id, row.name);
  StrAppend(&line, StateWord(row.state), PlaceOf(row), ", step ",
            FormatSteps(row.steps_done, row.steps_total));
  if (row.steps_per_s > 0) {
    StrAppend(&line, ", ", FormatRate(row.steps_per_s), " steps/s");
  }
  for (const auto& [name, value] : ByName(row.scalars)) {
    StrAppend(&line, ", ", name, " ", FormatScalar(value));
  }
  StrAppend(&line,
            absl::StrFormat(", share %.0f/%.0f%%", 100 * row.share_target,
                            100 * row.share_got));
  if (row.pauses > 0) {
    StrAppend(&line, ", ", row.pauses, " pauses, ", row.moves, " moves");
  }
  if (row.accelerators.empty() && row.reason != StateWord(row.state)) {
    StrAppend(&line, " (", row.reason, ")");
  }
  return line;
}

// Each that it had a lease of, once, in that order.
Json AcceleratorsUsed(uint64_t job, const Json& leases) {
  Json used = Json::array();
  for (const Json& lease : leases) {
    if (lease.at("job") != job) continue;
    const Json one = {{"server", lease.at("server")},
                      {"uuid", lease.at("uuid")},
                      {"type", lease.at("type")}};
    if (std::ranges::find(used, one) == used.end()) used.push_back(one);
  }
  return used;
}

Json SummaryOf(const QueueRow& row, const Json& leases) {
  const GenerationRow generation =
      row.last_generation.value_or(GenerationRow{});
  return {{"id", row.id},
          {"name", row.name},
          {"state", StateWord(row.state)},
          {"reason", row.reason},
          {"steps", row.steps_done},
          {"scalars", ByName(row.scalars)},
          {"pauses", row.pauses},
          {"moves", row.moves},
          {"pausing_s", row.pausing_s},
          {"share_target", row.share_target},
          {"share_got", row.share_got},
          {"accelerators_used", AcceleratorsUsed(row.id, leases)},
          {"final_generation", ToJson(generation)},
          {"checkpoint_directory", row.checkpoint_directory}};
}

}  // namespace

std::vector<std::string> LocalProgress::Take(const Look& look) {
  std::vector<std::string> lines;
  for (const QueueRow& row : look.rows) {
    const std::string what = StrCat(row.state, PlaceOf(row));
    const auto [told, is_new] = told_.try_emplace(row.id);
    const bool due = !row.Ended() && look.at - told->second.at >= kInterval_s;
    if (!is_new && !due && told->second.what == what) continue;
    told->second = {what, look.at};
    lines.push_back(LineOf(look.at, row));
  }
  last_ = look;
  return lines;
}

Json LocalProgress::Summary(const Json& leases) const {
  Json jobs = Json::array();
  for (const QueueRow& row : last_.rows) {
    jobs.push_back(SummaryOf(row, leases));
  }
  return {{"rounds", last_.status.rounds},
          {"seconds", last_.at},
          {"jobs", std::move(jobs)}};
}

}  // namespace gavel
