#include "coordinator/cli/profile_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "runtime/transport/lease_granter.h"

namespace gavel {
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

// A type becomes a part of "('TYPE', 1)" and of a comma-separated line.
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

// The accelerators of one type on each server.
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

// The accelerators of one server by group; one without a group is by itself.
std::vector<Places> GroupsOf(const Places& server) {
  std::vector<Places> groups;
  for (const AcceleratorInfo& info : server) {
    const auto known = std::ranges::find_if(groups, [&](const Places& group) {
      return !info.group.empty() && group.front().group == info.group;
    });
    if (known == groups.end()) {
      groups.push_back({info});
    } else {
      known->push_back(info);
    }
  }
  return groups;
}

// The places of each server by rack; a server without one is by itself.
std::vector<std::vector<Places>> RacksOf(const std::vector<ServerSpec>& servers,
                                         const std::vector<Places>& places) {
  std::vector<std::vector<Places>> racks;
  std::map<std::string, size_t> known;
  for (size_t s = 0; s < servers.size(); ++s) {
    const std::string& rack = servers[s].rack;
    size_t at = racks.size();
    if (!rack.empty()) at = known.try_emplace(rack, at).first->second;
    if (at == racks.size()) racks.emplace_back();
    racks[at].push_back(places[s]);
  }
  return racks;
}

// The first `count` of a server; empty if no server has so many.
Places Together(const std::vector<Places>& servers, size_t count) {
  for (const Places& server : servers) {
    if (server.size() < count) continue;
    return {server.begin(),
            server.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  return {};
}

// One of each server in turn; empty if they do not suffice, or if one server
// would have all.
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

Places Joined(const std::vector<Places>& parts) {
  Places all;
  for (const Places& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// The places of a gang at each level, by the value of Locality; empty where
// there are none.
std::array<Places, kLocalities> PlacesByLevel(
    const std::vector<ServerSpec>& servers, const std::string& type,
    size_t count) {
  const std::vector<Places> places = PlacesOf(servers, type);
  Places group;
  Places server;
  for (const Places& of_server : places) {
    const std::vector<Places> groups = GroupsOf(of_server);
    if (group.empty()) group = Together(groups, count);
    if (server.empty()) server = Apart(groups, count);
  }
  if (count == 1 || server.empty()) server = Together(places, count);
  // All in one group, or each by itself.
  if (count == 1 || GroupsOf(server).size() == 1) group.clear();
  Places rack;
  std::vector<Places> racks;
  for (const std::vector<Places>& of_rack : RacksOf(servers, places)) {
    if (rack.empty() && count > 1) rack = Apart(of_rack, count);
    racks.push_back(Joined(of_rack));
  }
  Places cluster = count > 1 ? Apart(racks, count) : Places();
  if (cluster.empty()) std::swap(cluster, rack);
  return {group, server, rack, cluster};
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
    for (const int scale_factor : scale_factors) {
      const auto places =
          PlacesByLevel(servers, type, static_cast<size_t>(scale_factor));
      bool any = false;
      for (const Locality level : kAllLocalities) {
        const ProfileCell like{0,    {},    scale_factor,
                               type, level, places[static_cast<size_t>(level)]};
        any |= !like.places.empty();
        for (size_t i = 0; i < workloads.size(); ++i) {
          if (like.places.empty() || !Has(workloads[i], scale_factor)) continue;
          cells.push_back(like);
          cells.back().workload = i;
        }
      }
      if (!any) {
        left_out->push_back(StrCat("scale factor ", scale_factor, " on ", type,
                                   ": there are not as many"));
      }
      const Locality level = Locality::kServer;
      const ProfileCell like{0,    {},    scale_factor,
                             type, level, places[static_cast<size_t>(level)]};
      if (pairs && !like.places.empty()) AddPairCells(workloads, like, &cells);
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

// ---- the results

namespace {

constexpr std::string_view kTitles =
    "workload,scale_factor,accelerator,placement,beside,steps_per_s,ci95,"
    "samples,seconds,note";
constexpr size_t kColumns = 10;
// By the value of Locality.
constexpr std::array<std::string_view, kLocalities> kPlacements = {
    "group", "consolidated", "rack", "spread"};

std::string_view PlacementName(Locality level) {
  return kPlacements[static_cast<size_t>(level)];
}

// The 0.975 quantile of Student's t.
double Quantile(size_t degrees_of_freedom) {
  static constexpr std::array<double, 30> kValues = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return degrees_of_freedom <= kValues.size() ? kValues[degrees_of_freedom - 1]
                                              : 1.96;
}

// A note is one cell of one line.
std::string Plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return c == ',' || static_cast<unsigned char>(c) < ' '; },
      ' ');
  return text;
}

std::string LineOf(const ProfileKey& key, const ProfileFigure& figure) {
  const std::string measured =
      figure.steps_per_s < 0 ? ""
                             : absl::StrFormat("%.17g", figure.steps_per_s);
  return absl::StrJoin(
      std::vector<std::string>{
          key.workload, StrCat(key.scale_factor), key.accelerator,
          std::string(PlacementName(key.level)), key.beside, measured,
          absl::StrFormat("%.6g", figure.half_width), StrCat(figure.samples),
          absl::StrFormat("%.1f", figure.seconds), Plain(figure.note)},
      ",");
}

bool ReadNumber(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value) && *value >= 0;
}

// Returns an error message, or an empty string for a valid line.
std::string ReadLine(const std::vector<std::string>& cells, ProfileKey* key,
                     ProfileFigure* figure) {
  if (cells.size() != kColumns) {
    return StrCat("has ", cells.size(), " cells, not ", kColumns);
  }
  key->workload = cells[0];
  key->accelerator = cells[2];
  key->beside = cells[4];
  figure->note = cells[9];
  if (!absl::SimpleAtoi(cells[1], &key->scale_factor) ||
      key->scale_factor < 1) {
    return StrCat("\"", cells[1], "\" is no scale factor");
  }
  const auto placement = std::ranges::find(kPlacements, cells[3]);
  if (placement == kPlacements.end()) {
    return StrCat("\"", cells[3],
                  "\" is neither group, consolidated, rack nor spread");
  }
  key->level = kAllLocalities[placement - kPlacements.begin()];
  if (key->workload.empty() || key->accelerator.empty()) {
    return "names no workload or no accelerator";
  }
  if (!cells[5].empty() && (!ReadNumber(cells[5], &figure->steps_per_s) ||
                            figure->steps_per_s > kStepsPerSecondMax)) {
    return StrCat("\"", cells[5], "\" is no throughput");
  }
  if (!ReadNumber(cells[6], &figure->half_width) ||
      !absl::SimpleAtoi(cells[7], &figure->samples) ||
      !ReadNumber(cells[8], &figure->seconds)) {
    return "has no confidence interval, samples or seconds";
  }
  return "";
}

}  // namespace

absl::StatusOr<ProfileResults> ProfileResults::Parse(std::string_view csv,
                                                     std::string_view source) {
  ProfileResults results;
  int number = 0;
  for (const absl::string_view text : absl::StrSplit(ToAbsl(csv), '\n')) {
    ++number;
    if (text.empty() || (number == 1 && ToStd(text) == kTitles)) continue;
    const std::vector<std::string> cells = absl::StrSplit(text, ',');
    ProfileKey key;
    ProfileFigure figure;
    const std::string wrong = ReadLine(cells, &key, &figure);
    if (number == 1 || !wrong.empty()) {
      return absl::InvalidArgumentError(
          StrCat(source, ":", number, ": ",
                 number == 1 ? "is no line of titles" : wrong,
                 "; it is no table of `gavel profile`, name another file"));
    }
    results.figures_[std::move(key)] = std::move(figure);
  }
  return results;
}

std::string ProfileResults::ToCsv() const {
  std::string csv = StrCat(kTitles, "\n");
  for (const auto& [key, figure] : figures_) {
    StrAppend(&csv, LineOf(key, figure), "\n");
  }
  return csv;
}

void ProfileResults::Set(const ProfileKey& key, ProfileFigure figure) {
  figures_[key] = std::move(figure);
}

const ProfileFigure* ProfileResults::Find(const ProfileKey& key) const {
  const auto found = figures_.find(key);
  if (found == figures_.end() || found->second.steps_per_s < 0) return nullptr;
  return &found->second;
}

absl::StatusOr<ThroughputTable> ProfileResults::ToTable() const {
  ThroughputTable::Figures figures;
  std::set<std::string> types;
  std::map<std::pair<std::string, int>, size_t> rows;
  bool has_levels = false;
  for (const auto& [key, figure] : figures_) {
    if (figure.steps_per_s < 0) continue;
    types.insert(key.accelerator);
    rows.try_emplace({key.workload, key.scale_factor}, 0);
    figures.has_unconsolidated |= key.level == Locality::kCluster;
    has_levels |= !ThroughputTable::IsGavels(key.level);
  }
  if (rows.empty()) {
    return absl::FailedPreconditionError("nothing has been measured");
  }
  figures.types.assign(types.begin(), types.end());
  for (auto& [name, row] : rows) {
    row = figures.names.size();
    figures.names.push_back(name);
  }
  const size_t cells = figures.types.size() * 2 * rows.size();
  figures.alone.assign(cells, -1);
  if (has_levels) figures.alone_at = figures.alone;
  figures.partners.resize(cells);
  // By key, and so the partners of a row come in the order of their rows.
  for (const auto& [key, figure] : figures_) {
    if (figure.steps_per_s < 0) continue;
    const auto type = static_cast<size_t>(
        std::lower_bound(figures.types.begin(), figures.types.end(),
                         key.accelerator) -
        figures.types.begin());
    const size_t row = rows.at({key.workload, key.scale_factor});
    const size_t cell =
        ThroughputTable::TableOf(type, key.level) * rows.size() + row;
    const bool gavels = ThroughputTable::IsGavels(key.level);
    if (key.beside.empty()) {
      (gavels ? figures.alone : figures.alone_at)[cell] = figure.steps_per_s;
      continue;
    }
    if (!gavels) continue;  // written by hand
    const ProfileFigure* const other =
        Find({key.beside, key.scale_factor, key.accelerator, key.level,
              key.workload});
    const auto other_row = rows.find({key.beside, key.scale_factor});
    if (other == nullptr || other_row == rows.end()) continue;
    figures.partners[cell].push_back(
        {other_row->second, {figure.steps_per_s, other->steps_per_s}});
  }
  return ThroughputTable::FromFigures(std::move(figures));
}

ProfileFigure FigureOf(const std::vector<ProfileSample>& samples) {
  ProfileFigure figure;
  double sum = 0;
  for (const ProfileSample& sample : samples) {
    sum += sample.steps_per_s * sample.weight_s;
    figure.seconds += sample.weight_s;
  }
  if (!(figure.seconds > 0)) return figure;
  figure.steps_per_s = sum / figure.seconds;
  figure.samples = static_cast<int>(samples.size());
  if (samples.size() < 2) return figure;
  double squares = 0;
  for (const ProfileSample& sample : samples) {
    const double apart = sample.steps_per_s - figure.steps_per_s;
    squares += apart * apart;
  }
  const auto n = static_cast<double>(samples.size());
  figure.half_width =
      Quantile(samples.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return figure;
}

// ---- the measurement

namespace {

namespace fs = std::filesystem;

constexpr double kPoll_s = 0.05;
constexpr size_t kTableBytesMax = size_t{64} << 20;
// Fewer samples do not tell their spread.
constexpr size_t kSamplesMin = 3;

std::string TitleOf(const ProfileCell& cell,
                    const std::vector<ProfileWorkload>& workloads) {
  std::string title = workloads[cell.workload].type;
  if (cell.beside) {
    StrAppend(&title, " beside ", workloads[*cell.beside].type);
  }
  StrAppend(&title, " on ", cell.scale_factor, " ", cell.accelerator);
  if (cell.level == Locality::kServer) return title;
  return StrCat(title, ", ", PlacementName(cell.level));
}

// The keys of one cell: two when it is a pair, each beside the other.
std::vector<ProfileKey> KeysOf(const ProfileCell& cell,
                               const std::vector<ProfileWorkload>& workloads) {
  ProfileKey key{workloads[cell.workload].type, cell.scale_factor,
                 cell.accelerator, cell.level, ""};
  if (!cell.beside) return {key};
  ProfileKey other = key;
  key.beside = workloads[*cell.beside].type;
  other.workload = key.beside;
  other.beside = key.workload;
  return {key, other};
}

// One cell from the start of its programs to their end.
class CellRun {
 public:
  CellRun(const std::vector<ProfileWorkload>& workloads,
          const ProfileCell& cell, const ProfileOptions& options,
          LeaseGranter& leases)
      : workloads_(workloads),
        cell_(cell),
        options_(options),
        leases_(leases) {}

  // One figure per measured job. CANCELLED: stopped.
  absl::StatusOr<std::vector<ProfileFigure>> Run() {
    std::vector<LeasedJob> jobs(measured());
    for (LeasedJob& job : jobs) {
      job.terms.places = cell_.places;
      job.terms.slots = cell_.beside ? 1 : 2;
    }
    for (const AcceleratorInfo& info : cell_.neighbours) {
      jobs.emplace_back().terms.places = {info};
    }
    const size_t count = jobs.size();
    const uint64_t incarnation = leases_.Begin(std::move(jobs));
    std::string why;
    for (size_t job = 0; job < count && why.empty(); ++job) {
      const absl::Status started = Start(job, incarnation);
      if (!started.ok()) why = std::string(started.message());
    }
    while (why.empty() && !IsEnough()) {
      if (options_.stop != nullptr && *options_.stop) {
        return absl::CancelledError("");
      }
      leases_.Turn(clock_.elapsed_s(), kPoll_s);
      why = WhyOver();
    }
    leases_.Turn(clock_.elapsed_s(), 0);
    // A failure may have come last.
    if (why.empty()) why = WhyOver();
    return Figures(why);
  }

 private:
  const ProfileWorkload& WorkloadOf(size_t job) const {
    return workloads_[job == 1 && cell_.beside ? *cell_.beside
                                               : cell_.workload];
  }
  // The jobs after these are neighbours, which only keep the server busy.
  size_t measured() const { return cell_.beside ? 2 : 1; }

  absl::Status Start(size_t job, uint64_t incarnation) {
    LiveLaunch launch;
    launch.worker.server = "profile";
    launch.worker.job_name = StrCat("profile-", job + 1);
    launch.worker.checkpoint_directory =
        StrCat(options_.folder, "/checkpoints-", job + 1);
    launch.worker.worker = {JobId(job + 1), 0, incarnation};
    launch.places = leases_.jobs()[job].terms.places;
    launch.endpoint = leases_.endpoint();
    launch.run_directory = options_.folder;
    launch.output_path = StrCat(options_.folder, "/job-", job + 1, ".log");
    std::error_code error;
    fs::remove_all(launch.worker.checkpoint_directory, error);
    GAVEL_RETURN_IF_ERROR(MakeDirectory(launch.worker.checkpoint_directory));
    fs::remove(launch.output_path, error);
    return StartWorkload(WorkloadOf(job), std::move(launch), &children_);
  }

  // Why the run is over; empty: it is not.
  std::string WhyOver() const {
    for (const LeasedJob& job : leases_.jobs()) {
      if (job.out_of_memory) return "out of memory";
      if (!job.error.empty()) return StrCat("failed: ", job.error);
    }
    for (const auto& child : children_) {
      if (!child->Ended()) continue;
      const int code = child->Collect();
      if (code == 0) return "its program ended; make it train for longer";
      return code > 0 ? StrCat("its program exited with ", code)
                      : StrCat("its program died of signal ", -code);
    }
    for (const LeasedJob& job : leases_.jobs()) {
      if (clock_.elapsed_s() - job.stepped_at <= options_.timeout_s) continue;
      return job.steps_done == 0
                 ? StrCat("no steps within ", options_.timeout_s,
                          " s; is its loop a gavel::Iterator?")
                 : StrCat("no step for ", options_.timeout_s, " s after ",
                          job.steps_done);
    }
    return "";
  }

  std::vector<ProfileSample> Samples(size_t job) const {
    std::vector<ProfileSample> samples;
    const std::optional<Time> from = TrainsFrom();
    if (!from) return samples;
    for (const ReportedRate& report : leases_.jobs()[job].rates) {
      if (report.at - report.window_s < *from + options_.warm_up_s) continue;
      samples.push_back({report.steps_per_s, report.window_s});
    }
    return samples;
  }

  // The time at which all jobs of the cell had made steps; nothing: not yet.
  std::optional<Time> TrainsFrom() const {
    Time from = 0;
    for (const LeasedJob& job : leases_.jobs()) {
      if (job.rates.empty()) return std::nullopt;
      const ReportedRate& first = job.rates.front();
      from = std::max(from, first.at - first.window_s);
    }
    return from;
  }

  bool IsEnough() const {
    bool precise = true;
    double least_s = kNever;
    for (size_t job = 0; job < measured(); ++job) {
      const std::vector<ProfileSample> samples = Samples(job);
      if (samples.size() < kSamplesMin) return false;
      const ProfileFigure figure = FigureOf(samples);
      least_s = std::min(least_s, figure.seconds);
      precise &= figure.half_width <= options_.precision * figure.steps_per_s;
    }
    return least_s >= options_.measure_s * (precise ? 1 : kLongestFactor);
  }

  std::vector<ProfileFigure> Figures(const std::string& why) const {
    std::vector<ProfileFigure> figures;
    bool all = true;
    bool out_of_memory = false;
    for (size_t job = 0; job < measured(); ++job) {
      const std::vector<ProfileSample> samples = Samples(job);
      figures.push_back(FigureOf(samples));
      all &= samples.size() >= kSamplesMin;
      out_of_memory |= leases_.jobs()[job].out_of_memory;
    }
    if (all && !out_of_memory) return figures;
    for (size_t job = 0; job < figures.size(); ++job) {
      figures[job] = ProfileFigure();
      figures[job].note = why;
      if (out_of_memory) figures[job].steps_per_s = 0;
    }
    return figures;
  }

  const std::vector<ProfileWorkload>& workloads_;
  const ProfileCell& cell_;
  const ProfileOptions& options_;
  LeaseGranter& leases_;
  const Stopwatch clock_;
  LiveProcesses children_;
};

class ProfileRun {
 public:
  ProfileRun(const std::vector<ProfileWorkload>& workloads,
             const std::vector<ProfileCell>& cells,
             const ProfileOptions& options)
      : workloads_(workloads), cells_(cells), options_(options) {}

  absl::Status Run() {
    GAVEL_RETURN_IF_ERROR(ReadTable());
    GAVEL_RETURN_IF_ERROR(MakeDirectory(options_.folder));
    GAVEL_ASSIGN_OR_RETURN(const auto leases, LeaseGranter::Open());
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (options_.show) {
        options_.show(i, cells_.size(), TitleOf(cells_[i], workloads_));
      }
      if (IsKnown(cells_[i])) continue;
      const absl::Status measured = Measure(cells_[i], *leases);
      if (absl::IsCancelled(measured)) {
        return absl::CancelledError(
            StrCat("stopped; the same command goes on with ", options_.table));
      }
      GAVEL_RETURN_IF_ERROR(measured);
    }
    GAVEL_RETURN_IF_ERROR(Write());
    if (failed_.empty()) return absl::OkStatus();
    return absl::AbortedError(StrCat(
        failed_.size(), " of ", cells_.size(), " could not be measured: ",
        absl::StrJoin(failed_, "; "), " (output in ", options_.folder,
        "; the same command tries them again)"));
  }
  size_t figures() const {
    return static_cast<size_t>(std::ranges::count_if(
        results_.figures(),
        [](const auto& entry) { return entry.second.steps_per_s >= 0; }));
  }

 private:
  absl::Status ReadTable() {
    std::error_code error;
    if (!fs::exists(options_.table, error)) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(options_.table, kTableBytesMax));
    GAVEL_ASSIGN_OR_RETURN(results_,
                           ProfileResults::Parse(text, options_.table));
    return absl::OkStatus();
  }

  absl::Status Measure(const ProfileCell& cell, LeaseGranter& leases) {
    GAVEL_ASSIGN_OR_RETURN(std::vector<ProfileFigure> figures,
                           CellRun(workloads_, cell, options_, leases).Run());
    const std::vector<ProfileKey> keys = KeysOf(cell, workloads_);
    if (keys.size() == 2 && keys[0] == keys[1]) {
      // A workload was measured beside itself: take the mean of both.
      figures[0].steps_per_s =
          (figures[0].steps_per_s + figures[1].steps_per_s) / 2;
      figures[0].half_width =
          std::max(figures[0].half_width, figures[1].half_width);
      figures.pop_back();
    }
    if (figures[0].steps_per_s < 0) {
      failed_.push_back(
          StrCat(TitleOf(cell, workloads_), ": ", figures[0].note));
    }
    for (size_t i = 0; i < figures.size(); ++i) {
      results_.Set(keys[i], std::move(figures[i]));
    }
    return Write();
  }

  absl::Status Write() const {
    GAVEL_RETURN_IF_ERROR(
        ReplaceFile(options_.table, results_.ToCsv(), kSharedMode));
    if (options_.output.empty()) return absl::OkStatus();
    const absl::StatusOr<ThroughputTable> table = results_.ToTable();
    if (absl::IsFailedPrecondition(table.status())) return absl::OkStatus();
    GAVEL_RETURN_IF_ERROR(table.status());
    return ReplaceFile(options_.output, WriteThroughputs(table->ToFigures()),
                       kSharedMode);
  }
  bool IsKnown(const ProfileCell& cell) const {
    return std::ranges::all_of(KeysOf(cell, workloads_), [&](const auto& key) {
      return results_.Find(key) != nullptr;
    });
  }

  const std::vector<ProfileWorkload>& workloads_;
  const std::vector<ProfileCell>& cells_;
  const ProfileOptions& options_;
  ProfileResults results_;
  std::vector<std::string> failed_;
};

}  // namespace

absl::Status RunProfile(const std::vector<ProfileWorkload>& workloads,
                        const std::vector<ProfileCell>& cells,
                        const ProfileOptions& options, size_t* figures) {
  ProfileRun run(workloads, cells, options);
  const absl::Status status = run.Run();
  *figures = run.figures();
  return status;
}

// ---- The command.

namespace {

struct ProfileFlags {
  std::string workloads;
  std::string cluster;  // file; empty: the GPUs of this machine
  bool alone = false;
  bool busy = false;
  ProfileOptions run;
};

absl::StatusOr<std::vector<ServerSpec>> FindServers(const ProfileFlags& flags) {
  std::vector<ServerSpec> servers;
  if (flags.cluster.empty()) {
    ServerSpec& server = servers.emplace_back();
    server.name = "here";
    GAVEL_ASSIGN_OR_RETURN(server.accelerators, DetectAccelerators());
    return servers;
  }
  GAVEL_ASSIGN_OR_RETURN(const auto cluster, ReadClusterFile(flags.cluster));
  servers = cluster.servers;
  for (ServerSpec& server : servers) {
    GAVEL_RETURN_IF_ERROR(FillFromGpus(&server.accelerators));
  }
  return servers;
}

absl::Status ProfileWith(ProfileFlags flags) {
  GAVEL_ASSIGN_OR_RETURN(const auto workloads, ReadWorkloads(flags.workloads));
  GAVEL_ASSIGN_OR_RETURN(const auto servers, FindServers(flags));
  std::vector<std::string> left_out;
  std::vector<ProfileCell> cells =
      CellsOf(workloads, servers, !flags.alone, &left_out);
  if (flags.busy) KeepOthersBusy(servers, &cells);
  for (const std::string& what : left_out) {
    std::fprintf(stderr, "gavel: left out: %s\n", what.c_str());
  }
  if (cells.empty()) {
    return absl::InvalidArgumentError(
        "there is nothing to measure on these accelerators; lower "
        "scale_factors, or declare more with --cluster");
  }
  GAVEL_RETURN_IF_ERROR(CheckWritable(flags.run.table));
  if (!flags.run.output.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(flags.run.output));
  }
  const StopFlag stop;
  flags.run.stop = stop.get();
  Terminal terminal;
  const Stopwatch clock;
  flags.run.show = [&](size_t done, size_t all, const std::string& what) {
    terminal.Show(
        terminal.is_terminal()
            ? RenderBar("profiling",
                        static_cast<double>(done) / static_cast<double>(all),
                        clock.elapsed_s(), what, terminal.width())
            : StrCat(done + 1, " of ", all, ": ", what, "\n"));
  };
  flags.run.folder = std::filesystem::absolute(flags.run.folder).string();
  size_t figures = 0;
  const absl::Status status = RunProfile(workloads, cells, flags.run, &figures);
  if (terminal.is_terminal()) terminal.Show("");
  std::printf("%zu figures in %s%s%s\n", figures, flags.run.table.c_str(),
              flags.run.output.empty() ? "" : ", as Gavel's JSON in ",
              flags.run.output.c_str());
  return status;
}

}  // namespace

void AddProfileCommand(CLI::App& app, int* exit_code) {
  auto [command, flags] = AddCommand<ProfileFlags>(
      app, exit_code, "profile",
      "Measures the throughputs of workloads on this machine's accelerators: "
      "alone, by scale factor, and in pairs. Stopped, the same command goes on",
      ProfileWith);
  flags.run.table = "profile.csv";
  flags.run.folder = "gavel-profile";
  AddOption(command, "workloads", flags.workloads, "WORKLOADS.toml",
            "file of [[workload]]")
      ->required();
  AddOption(command, "--cluster", flags.cluster, "",
            "declares the accelerators; without it the GPUs of this machine "
            "are detected");
  AddOption(command, "--table", flags.run.table, "FILE.csv",
            "the figures with their confidence intervals; what it has is not "
            "measured again");
  AddOption(command, "--output", flags.run.output, "FILE.json",
            "the same as Gavel's JSON, for --throughputs of simulate and "
            "coordinator");
  AddOption(command, "--state", flags.run.folder, "",
            "directory of the programs' output and checkpoints");
  command.add_flag("--alone", flags.alone, "no pairs");
  command.add_flag("--busy", flags.busy,
                   "meanwhile each other accelerator trains a copy of the "
                   "workload: what jobs do on a machine that is full");
  const auto seconds = [&](const char* name, double* value, double least,
                           const char* help) {
    AddOption(command, name, *value, "SECONDS", help)
        ->check(CLI::Range(least, 1e6));
  };
  seconds("--warm-up", &flags.run.warm_up_s, 0,
          "of training that is discarded");
  seconds("--measure", &flags.run.measure_s, 0.1,
          "that a cell is measured for");
  seconds("--timeout", &flags.run.timeout_s, 1,
          "from a program's start to its first steps");
  AddOption(command, "--precision", flags.run.precision, "",
            "a cell is measured for up to three times as long until half of "
            "its 95 % confidence interval is this part of it")
      ->check(CLI::Range(1e-6, 1.0));
}

}  // namespace gavel
