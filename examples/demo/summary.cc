#include "examples/demo/summary.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel::demo {
namespace {

using Json = nlohmann::json;

JobSummary ParseJob(const Json& json) {
  JobSummary job;
  json.at("name").get_to(job.name);
  json.at("state").get_to(job.state);
  json.at("steps").get_to(job.steps);
  json.at("scalars").get_to(job.scalars);
  json.at("pauses").get_to(job.pauses);
  json.at("moves").get_to(job.moves);
  json.at("pausing_s").get_to(job.pausing_s);
  for (const Json& used : json.at("accelerators_used")) {
    job.accelerators_used.push_back({used.at("uuid"), used.at("type"), 0});
  }
  json.at("final_generation").at("epoch").get_to(job.final_generation.epoch);
  json.at("final_generation").at("step").get_to(job.final_generation.step);
  json.at("checkpoint_directory").get_to(job.checkpoint_directory);
  return job;
}

std::string FinalLoss(const JobSummary& job) {
  const auto found = job.scalars.find("loss");
  return found == job.scalars.end() ? "-"
                                    : absl::StrFormat("%.4f", found->second);
}

std::string Row(const JobSummary& job) {
  return absl::StrFormat("%-20s %-10s %7d %10s %7d %6d %10.2f s\n", job.name,
                         job.state, job.steps, FinalLoss(job), job.pauses,
                         job.moves, job.pausing_s);
}

}  // namespace

absl::StatusOr<Summary> ParseSummary(std::string_view json) {
  // The one place where what the JSON library throws is caught.
  try {
    const Json parsed = Json::parse(json);
    Summary summary;
    parsed.at("rounds").get_to(summary.rounds);
    for (const Json& job : parsed.at("jobs")) {
      summary.jobs.push_back(ParseJob(job));
    }
    return summary;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        StrCat("not a summary of `gavel local`: ", error.what()));
  }
}

absl::Status FillThreads(const std::vector<AcceleratorInfo>& declared,
                         Summary* summary) {
  std::map<std::string, int> threads_by_uuid;
  for (const AcceleratorInfo& info : declared) {
    threads_by_uuid[info.uuid] = info.threads;
  }
  for (JobSummary& job : summary->jobs) {
    for (UsedAccelerator& used : job.accelerators_used) {
      const auto found = threads_by_uuid.find(used.uuid);
      if (found == threads_by_uuid.end()) {
        return absl::NotFoundError(
            StrCat("job ", job.name, " ran on ", used.uuid,
                   ", which the cluster file does not declare"));
      }
      used.threads = found->second;
    }
  }
  return absl::OkStatus();
}

bool WasPausedAndMoved(const JobSummary& job) {
  std::map<std::pair<std::string, int>, std::set<std::string>> uuids_by_kind;
  bool two_of_one_kind = false;
  for (const UsedAccelerator& used : job.accelerators_used) {
    std::set<std::string>& uuids = uuids_by_kind[{used.type, used.threads}];
    uuids.insert(used.uuid);
    two_of_one_kind = two_of_one_kind || uuids.size() >= 2;
  }
  return job.pauses > 0 && job.moves > 0 && two_of_one_kind;
}

std::string Render(const Summary& summary) {
  std::string text =
      absl::StrFormat("%-20s %-10s %7s %10s %7s %6s %12s\n", "JOB", "STATE",
                      "STEPS", "FINAL LOSS", "PAUSES", "MOVES", "LOST BY THEM");
  for (const JobSummary& job : summary.jobs) text += Row(job);
  return text + absl::StrFormat("%d rounds\n", summary.rounds);
}

}  // namespace gavel::demo
