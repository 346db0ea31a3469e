#include "coordinator/cli/rows.h"

#include <algorithm>
#include <utility>

namespace gavel {
namespace {

const Json& Field(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

void Read(const Json& object, const char* key, std::string* value) {
  const Json& field = Field(object, key);
  if (field.is_string()) *value = field.get<std::string>();
}
void Read(const Json& object, const char* key, bool* value) {
  const Json& field = Field(object, key);
  if (field.is_boolean()) *value = field.get<bool>();
}
void Read(const Json& object, const char* key, double* value) {
  const Json& field = Field(object, key);
  if (field.is_number()) *value = field.get<double>();
}
void Read(const Json& object, const char* key, uint64_t* value) {
  const Json& field = Field(object, key);
  if (field.is_number_unsigned()) *value = field.get<uint64_t>();
  if (field.is_number_integer() && field.get<int64_t>() >= 0) {
    *value = field.get<uint64_t>();
  }
}
template <class T>
void Read(const Json& object, const char* key, std::optional<T>* value) {
  T read{};
  if (!Field(object, key).is_number()) return;
  Read(object, key, &read);
  *value = read;
}
template <class T>
void Read(const Json& object, const char* key,
          std::map<std::string, T>* values) {
  const Json& field = Field(object, key);
  if (!field.is_object()) return;
  for (const auto& [name, value] : field.items()) {
    if (value.is_number()) (*values)[name] = value.template get<T>();
  }
}

void Read(const Json& object, const char* key,
          std::vector<std::string>* values) {
  const Json& field = Field(object, key);
  if (!field.is_array()) return;
  for (const Json& one : field) {
    if (one.is_string()) values->push_back(one.get<std::string>());
  }
}

void Read(const Json& object, const char* key, std::vector<uint64_t>* values) {
  const Json& field = Field(object, key);
  if (!field.is_array()) return;
  for (const Json& one : field) {
    if (one.is_number_unsigned()) values->push_back(one.get<uint64_t>());
  }
}

std::vector<AcceleratorRow> ParseAccelerators(const Json& json) {
  std::vector<AcceleratorRow> rows;
  if (!json.is_array()) return rows;
  for (const Json& object : json) {
    AcceleratorRow row;
    Read(object, "server", &row.server);
    Read(object, "type", &row.type);
    Read(object, "uuid", &row.uuid);
    Read(object, "state", &row.state);
    Read(object, "device", &row.device);
    Read(object, "slow_down_factor", &row.slow_down_factor);
    Read(object, "speed", &row.speed);
    Read(object, "jobs", &row.jobs);
    Read(object, "kept_jobs", &row.kept_jobs);
    Read(object, "starting_jobs", &row.starting_jobs);
    Read(object, "drained", &row.drained);
    Read(object, "drain_in_s", &row.drain_in_s);
    rows.push_back(std::move(row));
  }
  return rows;
}

QueueRow ParseQueueRow(const Json& object) {
  QueueRow row;
  Read(object, "id", &row.id);
  Read(object, "name", &row.name);
  Read(object, "owner", &row.owner);
  Read(object, "state", &row.state);
  row.accelerators = ParseAccelerators(Field(object, "accelerators"));
  Read(object, "scale_factor", &row.scale_factor);
  Read(object, "steps_done", &row.steps_done);
  Read(object, "steps_total", &row.steps_total);
  Read(object, "steps_per_s", &row.steps_per_s);
  Read(object, "scalars", &row.scalars);
  Read(object, "share_target", &row.share_target);
  Read(object, "share_got", &row.share_got);
  Read(object, "pauses", &row.pauses);
  Read(object, "moves", &row.moves);
  Read(object, "pausing_s", &row.pausing_s);
  const Json& generation = Field(object, "last_generation");
  Read(generation, "epoch", &row.generation_epoch);
  Read(generation, "step", &row.generation_step);
  Read(object, "reason", &row.reason);
  Read(object, "checkpoint_directory", &row.checkpoint_directory);
  return row;
}

}  // namespace

bool QueueRow::Ended() const {
  return state == "CD" || state == "CA" || state == "F";
}

std::vector<QueueRow> ParseQueue(const Json& json) {
  std::vector<QueueRow> rows;
  if (!json.is_array()) return rows;
  for (const Json& object : json) rows.push_back(ParseQueueRow(object));
  return rows;
}

std::vector<NodeRow> ParseNodes(const Json& json) {
  std::vector<NodeRow> rows;
  if (!json.is_array()) return rows;
  for (const Json& object : json) {
    NodeRow row;
    Read(object, "server", &row.server);
    Read(object, "state", &row.state);
    Read(object, "parked_bytes", &row.parked_bytes);
    row.accelerators = ParseAccelerators(Field(object, "accelerators"));
    rows.push_back(std::move(row));
  }
  return rows;
}

StatusRow ParseStatus(const Json& json) {
  StatusRow row;
  Read(json, "term", &row.term);
  Read(json, "seq", &row.seq);
  Read(json, "policy", &row.policy);
  Read(json, "rounds", &row.rounds);
  Read(json, "round_duration_s", &row.round_duration_s);
  Read(json, "lease_duration_s", &row.lease_duration_s);
  Read(json, "round_ends_in_s", &row.round_ends_in_s);
  Read(json, "outcome", &row.outcome);
  Read(json, "solver", &row.solver);
  Read(json, "objective", &row.objective);
  const Json& profiling = Field(json, "profiling");
  Read(profiling, "percentage_max", &row.profiling_percentage_max);
  Read(profiling, "accelerators", &row.profiling_accelerators);
  Read(profiling, "accelerator_s", &row.profiling_s);
  const Json& failures = Field(json, "failures");
  Read(failures, "workers_lost", &row.workers_lost);
  Read(failures, "busy_s", &row.busy_s);
  Read(failures, "interval_s", &row.failure_interval_s);
  Read(json, "jobs", &row.jobs);
  Read(json, "troubles", &row.troubles);
  return row;
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
