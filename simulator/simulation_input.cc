#include "simulator/simulation_input.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/named_numbers.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::array<std::string_view, 3> kGavelTypes = {"v100", "p100", "k80"};
constexpr size_t kOverheadsBytesMax = 16 * 1024 * 1024;
// A day; longer is not a pause.
constexpr NumberRange kOverhead = {.max = 24 * 3600};
constexpr std::string_view kOtherTypes = "*";

absl::Status Refusal(std::string_view part, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(QuoteToml(part), what));
}

// "36" or "36x4": accelerators and how many of them are on a server.
absl::StatusOr<ClusterPart> ParseCount(std::string_view text, int count_min) {
  ClusterPart part;
  const size_t cross = text.find('x');
  const auto count = ParseInteger(text.substr(0, cross));
  if (!count.has_value() || *count < count_min ||
      *count > kSimulatedAcceleratorsMax) {
    return Refusal(
        text, StrCat(" is no number of accelerators; write ", count_min, " to ",
                     kSimulatedAcceleratorsMax,
                     ", and e.g. x4 behind it for 4 on each server"));
  }
  part.count = *count;
  part.per_server = std::max(1, part.count);
  if (cross == std::string_view::npos) return part;
  const auto per_server = ParseInteger(text.substr(cross + 1));
  if (!per_server.has_value() || *per_server < 1 ||
      part.count % *per_server != 0) {
    return Refusal(text, StrCat(" does not fill servers; write behind the x "
                                "how many are on each, a divisor of ",
                                part.count));
  }
  part.per_server = *per_server;
  return part;
}

absl::StatusOr<std::vector<ClusterPart>> ParseGavelCluster(
    std::string_view text) {
  std::vector<TextField> counts;
  SplitFields(text, ':', counts);
  if (counts.size() != kGavelTypes.size()) {
    return Refusal(text, StrCat(" has ", counts.size(),
                                " numbers; write three (v100:p100:k80), or "
                                "e.g. v100:36,k80:36"));
  }
  std::vector<ClusterPart> cluster;
  for (size_t i = 0; i < counts.size(); ++i) {
    GAVEL_ASSIGN_OR_RETURN(ClusterPart part, ParseCount(counts[i].text, 0));
    part.type = kGavelTypes[i];
    if (part.count > 0) cluster.push_back(std::move(part));
  }
  if (cluster.empty()) {
    return Refusal(text, " has no accelerators; write at least one");
  }
  return cluster;
}

absl::StatusOr<ClusterPart> ParsePart(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !IsValidName(text.substr(0, colon))) {
    return Refusal(text, " is not TYPE:COUNT; write e.g. v100:36,k80:36x4");
  }
  GAVEL_ASSIGN_OR_RETURN(ClusterPart part,
                         ParseCount(text.substr(colon + 1), 1));
  part.type = text.substr(0, colon);
  return part;
}

void ReadOverhead(TomlReader reader, Overhead& overhead) {
  reader.Read("start_s", overhead.start_s, kOverhead);
  reader.Read("pause_s", overhead.pause_s, kOverhead);
  reader.Read("resume_s", overhead.resume_s, kOverhead);
  overhead.move_s = overhead.resume_s;
  reader.Read("move_s", overhead.move_s, kOverhead);
}

}  // namespace

absl::StatusOr<std::vector<ClusterPart>> ParseCluster(std::string_view text) {
  if (text.find_first_not_of("0123456789:x") == std::string_view::npos &&
      !text.empty()) {
    return ParseGavelCluster(text);
  }
  std::vector<ClusterPart> cluster;
  std::vector<TextField> parts;
  SplitFields(text, ',', parts);
  for (const TextField& field : parts) {
    GAVEL_ASSIGN_OR_RETURN(ClusterPart part, ParsePart(field.text));
    if (std::any_of(cluster.begin(), cluster.end(),
                    [&part](const ClusterPart& other) {
                      return other.type == part.type;
                    })) {
      return Refusal(field.text, StrCat(" is a second part of ", part.type,
                                        "; write each type once"));
    }
    cluster.push_back(std::move(part));
  }
  return cluster;
}

absl::StatusOr<Overheads> ParseOverheads(std::string_view text) {
  Overheads overheads;
  if (text == "none") return overheads;
  GAVEL_ASSIGN_OR_RETURN(
      const auto parts,
      ParseNamedNumbers(text, kOverhead, "pause=2,resume=5,move=9, or none"));
  std::optional<double> move_s;
  for (const auto& [name, seconds] : parts) {
    if (name == "start") {
      overheads.all.start_s = seconds;
    } else if (name == "pause") {
      overheads.all.pause_s = seconds;
    } else if (name == "resume") {
      overheads.all.resume_s = seconds;
    } else if (name == "move") {
      move_s = seconds;
    } else {
      return Refusal(name,
                     " is no overhead; write start, pause, resume or move");
    }
  }
  overheads.all.move_s = move_s.value_or(overheads.all.resume_s);
  return overheads;
}

absl::StatusOr<Overheads> ParseOverheadsFile(std::string_view toml,
                                             std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kOverheadsBytesMax));
  absl::Status status;
  TomlReader reader(root, source, status);
  Overheads overheads;
  for (const std::string& type : reader.Keys()) {
    const toml::table* table = root.get(type)->as_table();
    if (table == nullptr) {
      reader.Fail(type, StrCat(QuoteToml(type),
                               " is no table; write a job type, e.g. "
                               "[\"A3C\"], or [\"*\"] for all, and the "
                               "seconds below it"));
      break;
    }
    ReadOverhead(
        TomlReader(*table, source, {"start_s", "pause_s", "resume_s", "move_s"},
                   status),
        type == kOtherTypes ? overheads.all : overheads.by_type[type]);
  }
  GAVEL_RETURN_IF_ERROR(status);
  return overheads;
}

}  // namespace gavel
