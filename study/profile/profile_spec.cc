#include "study/profile/profile_spec.h"

#include <algorithm>
#include <set>

#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

constexpr size_t kWorkloadBytesMax = size_t{1} << 20;
constexpr int kScaleFactorMax = 1024;

constexpr FileKey kWorkloadKeys[] = {{.name = "type"},
                                     {.name = "command"},
                                     {.name = "working_directory"},
                                     {.name = "environment"},
                                     {.name = "scale_factors"},
                                     {.name = "pairs"}};
constexpr FileKey kVariables[] = {{.name = "NAME", .any_name = true}};
constexpr FileTable kTables[] = {{"[[workload]]", "", kWorkloadKeys},
                                 {"[workload.environment]", "", kVariables}};

// It becomes a part of "('TYPE', 1)" and of a comma separated line.
bool IsRowName(std::string_view type) {
  return !type.empty() && std::ranges::none_of(type, [](char c) {
    return c == '\'' || c == '"' || c == ',' || c == '\\' ||
           static_cast<unsigned char>(c) < ' ';
  });
}

void ReadScaleFactors(TomlReader& reader, const toml::table& table,
                      std::vector<int>* out) {
  if (!reader.Has("scale_factors")) return;
  const toml::array* const list = table["scale_factors"].as_array();
  std::set<int> factors;
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto value = (*list)[i].value<int64_t>();
    if (value.has_value() && *value >= 1 && *value <= kScaleFactorMax) {
      factors.insert(static_cast<int>(*value));
    }
  }
  if (list == nullptr || list->empty() || factors.size() != list->size()) {
    return reader.Fail(
        "scale_factors",
        StrCat("scale_factors is no list of different numbers from 1 to ",
               kScaleFactorMax, "; write e.g. [1, 2, 4]"));
  }
  out->assign(factors.begin(), factors.end());
}

ProfileWorkload ReadWorkload(const toml::table& table, std::string_view source,
                             absl::Status& status) {
  ProfileWorkload workload;
  TomlReader reader(table, source, kTables, "[[workload]]", status);
  reader.Require("type", "type = \"LM (batch size 20)\"");
  reader.Require("command", "command = [\"./train\", \"--batch\", \"20\"]");
  if (reader.Read("type", workload.type) && !IsRowName(workload.type)) {
    reader.Fail("type",
                "must have a name without quotes, commas and backslashes; it "
                "names a row of the table");
  }
  if (reader.Read("command", workload.argv) && workload.argv.empty()) {
    reader.Fail("command", "is empty; name the program first");
  }
  reader.Read("working_directory", workload.working_directory);
  reader.Read("pairs", workload.pairs);
  ReadScaleFactors(reader, table, &workload.scale_factors);
  if (const toml::table* environment = reader.Table("environment")) {
    TomlReader variables(*environment, source, kTables,
                         "[workload.environment]", status);
    for (const std::string& name : variables.Keys()) {
      std::string value;
      if (variables.Read(name, value)) {
        workload.environment.emplace_back(name, std::move(value));
      }
    }
  }
  return workload;
}

using Places = std::vector<AcceleratorInfo>;

// Those of one type, by server.
std::vector<Places> PlacesOf(const std::vector<ServerSpec>& servers,
                             const std::string& type) {
  std::vector<Places> places;
  for (const ServerSpec& server : servers) {
    Places& of_server = places.emplace_back();
    for (const AcceleratorInfo& info : server.accelerators) {
      if (info.type == type) of_server.push_back(info);
    }
  }
  return places;
}

// The first of a server that has so many; empty: none has.
Places Together(const std::vector<Places>& servers, size_t count) {
  for (const Places& server : servers) {
    if (server.size() < count) continue;
    return {server.begin(),
            server.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  return {};
}

// One of each server in turn; empty: they do not suffice, or one would have
// all.
Places Apart(const std::vector<Places>& servers, size_t count) {
  Places taken;
  size_t used = 0;
  for (size_t turn = 0; taken.size() < count; ++turn) {
    const size_t before = taken.size();
    for (const Places& server : servers) {
      if (turn >= server.size() || taken.size() == count) continue;
      used += turn == 0 ? 1 : 0;
      taken.push_back(server[turn]);
    }
    if (taken.size() == before) return {};
  }
  return used > 1 ? taken : Places();
}

bool Has(const ProfileWorkload& workload, int scale_factor) {
  return std::ranges::find(workload.scale_factors, scale_factor) !=
         workload.scale_factors.end();
}

void AddPairCells(const std::vector<ProfileWorkload>& workloads,
                  const ProfileCell& like, std::vector<ProfileCell>* cells) {
  for (size_t a = 0; a < workloads.size(); ++a) {
    for (size_t b = a; b < workloads.size(); ++b) {
      const bool both = workloads[a].pairs && workloads[b].pairs &&
                        Has(workloads[a], like.scale_factor) &&
                        Has(workloads[b], like.scale_factor);
      if (!both) continue;
      ProfileCell& cell = cells->emplace_back(like);
      cell.workload = a;
      cell.beside = b;
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<ProfileWorkload>> ParseWorkloads(
    std::string_view toml, std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kWorkloadBytesMax));
  absl::Status status;
  TomlReader reader(root, source, {"workload"}, status);
  std::vector<ProfileWorkload> workloads;
  std::set<std::string> types;
  for (const toml::table* table : reader.Tables("workload")) {
    workloads.push_back(ReadWorkload(*table, source, status));
    if (!types.insert(workloads.back().type).second) {
      TomlReader(*table, source, status)
          .Fail("type", StrCat("\"", workloads.back().type,
                               "\" is there twice; give each its own"));
    }
  }
  if (workloads.empty()) {
    reader.FailHere(
        "there is no workload; write [[workload]] with type and command");
  }
  GAVEL_RETURN_IF_ERROR(status);
  return workloads;
}

std::vector<ProfileCell> CellsOf(const std::vector<ProfileWorkload>& workloads,
                                 const std::vector<ServerSpec>& servers,
                                 bool pairs,
                                 std::vector<std::string>* left_out) {
  std::set<std::string> types;
  for (const ServerSpec& server : servers) {
    for (const AcceleratorInfo& info : server.accelerators) {
      types.insert(info.type);
    }
  }
  std::set<int> scale_factors;
  for (const ProfileWorkload& workload : workloads) {
    scale_factors.insert(workload.scale_factors.begin(),
                         workload.scale_factors.end());
  }
  std::vector<ProfileCell> cells;
  for (const std::string& type : types) {
    const std::vector<Places> places = PlacesOf(servers, type);
    for (const int scale_factor : scale_factors) {
      const auto count = static_cast<size_t>(scale_factor);
      ProfileCell together{0,    {},    scale_factor,
                           type, false, Together(places, count)};
      ProfileCell apart{
          0,    {},   scale_factor,
          type, true, count > 1 ? Apart(places, count) : Places()};
      for (const ProfileCell* like : {&together, &apart}) {
        for (size_t i = 0; i < workloads.size(); ++i) {
          if (like->places.empty() || !Has(workloads[i], scale_factor))
            continue;
          cells.push_back(*like);
          cells.back().workload = i;
        }
      }
      if (together.places.empty() && apart.places.empty()) {
        left_out->push_back(StrCat("scale factor ", scale_factor, " on ", type,
                                   ": there are not as many"));
      }
      if (pairs && !together.places.empty()) {
        AddPairCells(workloads, together, &cells);
      }
    }
  }
  return cells;
}

void KeepOthersBusy(const std::vector<ServerSpec>& servers,
                    std::vector<ProfileCell>* cells) {
  for (ProfileCell& cell : *cells) {
    for (const ServerSpec& server : servers) {
      for (const AcceleratorInfo& info : server.accelerators) {
        const bool used = std::ranges::any_of(
            cell.places,
            [&](const auto& own) { return own.uuid == info.uuid; });
        if (!used) cell.neighbours.push_back(info);
      }
    }
  }
}

}  // namespace gavel::study
