#include "coordinator/cli/daemon/daemon_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/workload/file_keys.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// As many as Gavel's own table has models.
constexpr int kReferenceModels = 26;
constexpr size_t kThroughputBytesMax = size_t{256} << 20;

std::string LongEnough(const std::string& text) {
  const std::string wrong = CheckAboveZero(text);
  if (!wrong.empty()) return wrong;
  if (std::strtod(text.c_str(), nullptr) >= kRoundDurationMin_s) return "";
  return StrCat(text, " s is too short; give at least ", kRoundDurationMin_s);
}

}  // namespace

void AddSchedulingFlags(CLI::App& command, SchedulingFlags* flags) {
  const auto seconds =
      [&](const char* name, std::optional<double>* value, const char* help,
          std::string (*check)(const std::string&) = CheckAboveZero) {
        AddOption(command, name, *value, "SECONDS", help)->check(check);
      };
  AddOption(command, "--policy", flags->policy, "",
            "max_min_fairness_perf (default), fifo, ...; a name that does not "
            "exist lists them all");
  AddOption(command, "--mechanism", flags->mechanism, "",
            "gavel (default), or move_aware: moves are weighed");
  AddOption(command, "--queue", flags->queue, "",
            "global (default), or per_type");
  AddOption(command, "--throughputs", flags->throughputs, "",
            "Gavel's throughput file, for job types and pairs");
  AddOption(command, "--reference-models", flags->reference_models, "",
            "a job whose type the throughput file lacks is taken to be as the "
            "one of so many that it is most like; 0: as none (default 26)")
      ->check(CLI::Range(0, 100'000));
  AddOption(command, "--profiling-percentage", flags->profiling_percentage, "",
            "at most this part of a type's accelerators, but one, runs jobs "
            "and pairs on trial that nobody has measured there (default 50); "
            "0: none")
      ->check(CLI::Range(0.0, 100.0));
  seconds("--round-duration", &flags->round_duration_s,
          "length of a round, from 0.1 on (default 360)", LongEnough);
  seconds("--lease-duration", &flags->lease_duration_s,
          "length of a lease, from 0.1 on (default 60, at most a round)",
          LongEnough);
  seconds("--start-timeout", &flags->start_timeout_s,
          "for a worker to start, before its process is ended, while no bytes "
          "are read; a job's start_timeout_s counts more (default 120)");
  seconds("--pause-grace", &flags->pause_grace_s,
          "for a worker to pause, before its process is ended, while no bytes "
          "are written; a job's pause_grace_s counts more (default 60)");
  seconds("--stop-grace", &flags->stop_grace_s,
          "between SIGTERM and SIGKILL (default 10)");
  AddOption(command, "--hang-timeout", flags->hang_timeout_s, "SECONDS",
            "a worker that makes no step and passes no boundary for this long, "
            "and for 100 of its steps, is ended and started again; a job's "
            "hang_timeout_s counts more; 0: never (default 600)")
      ->check(CLI::Range(0.0, 1e9));
  seconds("--agent-timeout", &flags->agent_timeout_s,
          "a silent agent is unreachable after this long (default 15)");
}

namespace {

// What names mean, and the files behind them.
absl::Status ReadMechanism(const SchedulingSpec& spec, EngineOptions& engine) {
  const auto mechanism = FindMechanism(spec.mechanism);
  if (!mechanism.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("mechanism \"", spec.mechanism,
               "\" does not exist; choose gavel or move_aware"));
  }
  const auto queue = FindQueue(spec.queue);
  if (!queue.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("queue \"", spec.queue,
               "\" does not exist; choose global or per_type"));
  }
  engine.mechanism = *mechanism;
  engine.queue = *queue;
  engine.reset_interval_s = spec.reset_interval_s;
  engine.placement_sensitive = spec.placement_sensitive;
  for (const TraceEntity& entity : spec.entities) {
    engine.entities.push_back({entity.name, entity.weight, entity.policy});
  }
  if (spec.throughputs.empty()) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const std::string json,
                         ReadFile(spec.throughputs, kThroughputBytesMax));
  GAVEL_ASSIGN_OR_RETURN(ThroughputTable table,
                         ThroughputTable::Parse(json, spec.throughputs));
  engine.throughputs =
      std::make_shared<const ThroughputTable>(std::move(table));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Scheduling> MergeScheduling(const SchedulingSpec& spec,
                                           const SchedulingFlags& flags) {
  Scheduling merged;
  merged.policy = flags.policy.value_or(spec.policy);
  merged.prices = spec.prices;
  EngineOptions& engine = merged.engine;
  SchedulingSpec named = spec;
  named.mechanism = flags.mechanism.value_or(spec.mechanism);
  named.queue = flags.queue.value_or(spec.queue);
  named.throughputs = flags.throughputs.value_or(spec.throughputs);
  GAVEL_RETURN_IF_ERROR(ReadMechanism(named, engine));
  engine.round_duration_s =
      flags.round_duration_s.value_or(spec.round_duration_s);
  engine.lease_duration_s = flags.lease_duration_s.value_or(
      std::min(spec.lease_duration_s, engine.round_duration_s));
  engine.reference_models = flags.reference_models.value_or(kReferenceModels);
  engine.profiling_percentage =
      flags.profiling_percentage.value_or(engine.profiling_percentage);
  engine.launch_timeout_s =
      flags.start_timeout_s.value_or(engine.launch_timeout_s);
  engine.pause_grace_s = flags.pause_grace_s.value_or(engine.pause_grace_s);
  engine.stop_grace_s = flags.stop_grace_s.value_or(engine.stop_grace_s);
  engine.hang_timeout_s = flags.hang_timeout_s.value_or(engine.hang_timeout_s);
  engine.agent_timeout_s =
      flags.agent_timeout_s.value_or(engine.agent_timeout_s);
  engine.heartbeat_interval_s =
      std::min(engine.heartbeat_interval_s, engine.agent_timeout_s / 4);
  if (engine.lease_duration_s > engine.round_duration_s) {
    return absl::InvalidArgumentError(
        StrCat("a lease of ", engine.lease_duration_s,
               " s exceeds the round of ", engine.round_duration_s,
               " s; lower --lease-duration or lengthen the round"));
  }
  return merged;
}

std::string DefaultRunDirectory(
    const std::vector<AcceleratorInfo>& accelerators) {
  const bool any_gpu = std::ranges::any_of(
      accelerators, [](const auto& info) { return info.device != "cpu"; });
  if (!any_gpu) return "";
  // Of root there is one, whoever's environment it has: two would let an
  // accelerator have two owners.
  if (geteuid() == 0) return "/run/gavel";
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return StrCat(runtime, "/gavel");
  return StrCat("/tmp/gavel-", getuid());
}

}  // namespace gavel
