#include "coordinator/workload/throughput_writer.h"

#include <utility>

#include "absl/strings/str_replace.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {
namespace {

using OrderedJson = nlohmann::ordered_json;

// As Python prints a tuple of the two.
std::string RowName(const std::pair<std::string, int>& name) {
  const bool apostrophe = name.first.find('\'') != std::string::npos;
  const bool quotes = name.first.find('"') != std::string::npos;
  const char* const quote = apostrophe && !quotes ? "\"" : "'";
  std::string type = absl::StrReplaceAll(name.first, {{"\\", "\\\\"}});
  if (apostrophe && quotes) type = absl::StrReplaceAll(type, {{"'", "\\'"}});
  return StrCat("(", quote, type, quote, ", ", name.second, ")");
}

// All rows of one table: of a type, consolidated or not.
OrderedJson TableJson(const ThroughputTable::Figures& figures, size_t table) {
  const size_t rows = figures.names.size();
  OrderedJson json = OrderedJson::object();
  for (size_t row = 0; row < rows; ++row) {
    const size_t cell = table * rows + row;
    OrderedJson of_row = OrderedJson::object();
    if (figures.alone[cell] >= 0) of_row["null"] = figures.alone[cell];
    for (const auto& [other, steps_per_s] : figures.partners[cell]) {
      of_row[RowName(figures.names[other])] = {steps_per_s.first,
                                               steps_per_s.second};
    }
    if (!of_row.empty()) json[RowName(figures.names[row])] = std::move(of_row);
  }
  return json;
}

}  // namespace

std::string WriteThroughputs(const ThroughputTable::Figures& figures) {
  OrderedJson json = OrderedJson::object();
  for (size_t type = 0; type < figures.types.size(); ++type) {
    for (const bool spread : {false, true}) {
      OrderedJson table = TableJson(figures, type * 2 + (spread ? 1 : 0));
      if (table.empty()) continue;
      json[StrCat(figures.types[type], spread ? "_unconsolidated" : "")] =
          std::move(table);
    }
  }
  return json.dump(1) + "\n";
}

}  // namespace gavel
