#include "coordinator/cli/rows.h"

#include <algorithm>

#include "coordinator/server/query/row_json.h"

namespace gavel {
std::vector<QueueRow> ParseQueue(const Json& json) {
  return ReadJson<std::vector<QueueRow>>(json);
}

std::vector<NodeRow> ParseNodes(const Json& json) {
  return ReadJson<std::vector<NodeRow>>(json);
}

StatusRow ParseStatus(const Json& json) { return ReadJson<StatusRow>(json); }

WhyRow ParseWhy(const Json& json) { return ReadJson<WhyRow>(json); }

std::vector<ForecastRow> ParseForecast(const Json& json) {
  return ReadJson<std::vector<ForecastRow>>(json);
}

std::vector<std::string> StateLettersOf(std::string_view state) {
  std::vector<std::string> letters;
  for (const char* known : {"PD", "R", "S", "CG", "CD", "F", "H", "CA"}) {
    if (state == known || state == StateWord(known)) letters.push_back(known);
  }
  return letters;
}

void SortLiveFirst(std::vector<QueueRow>& rows) {
  const auto place = [](const QueueRow& row) {
    if (row.state == "R" || row.state == "CG") return 0;
    if (row.state == "S" || row.state == "PD") return 1;
    return row.state == "CD" || row.state == "CA" ? 3 : 2;
  };
  std::ranges::stable_sort(rows, {}, place);
}

std::string_view StateWord(std::string_view letters) {
  if (letters == "PD") return "waiting";
  if (letters == "R") return "running";
  if (letters == "S") return "paused";
  if (letters == "CG") return "pausing";
  if (letters == "CD") return "finished";
  if (letters == "F") return "held";
  if (letters == "CA") return "cancelled";
  return letters;
}

}  // namespace gavel
