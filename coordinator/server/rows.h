// The rows that a coordinator sends to the command line, as JSON: the one place
// that names their keys. The server fills the structs and writes them; the
// command line reads them back (cli/table.h).
//
// A member's name is its key; the list in GAVEL_ROW gives the order. Fields may
// be added, and none changes its meaning: the other side may be older or newer.
// Times are seconds of the engine's clock (query.h), except those of a job,
// which are seconds since 1970. Values that are not known are null. Plain
// values.
//
// ToJson and ReadJson convert between rows and JSON values; JsonText writes
// large listings directly as text; JsonPage collects rows into an answer of
// bounded length.
#ifndef GAVEL_COORDINATOR_SERVER_ROWS_H_
#define GAVEL_COORDINATOR_SERVER_ROWS_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {

// The members of a row, a plain struct, by name: for JSON and for tables
// (history.h).

struct RowKey {
  std::string_view name;
  std::string_view json;  // ,"name":
};

// GAVEL_ROW(Type, member...) defines VisitFields(row, visit), which calls
// visit(RowKey, row.member) for each member listed, in this order. nlohmann's
// own NLOHMANN_DEFINE_TYPE would read strictly, and sort the keys.
#define GAVEL_ROW_FIELD(name)                              \
  {                                                        \
    static constexpr RowKey key{#name, ",\"" #name "\":"}; \
    visit(key, row.name);                                  \
  }
#define GAVEL_ROW(Type, ...)                                                \
  template <class Row, class Visit>                                         \
  requires std::same_as<std::remove_const_t<Row>, Type>                     \
  void VisitFields(Row& row, Visit&& visit) {                               \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(GAVEL_ROW_FIELD, __VA_ARGS__)) \
  }

template <class T>
concept IsRow = requires(T& row) {
  VisitFields(row, [](const RowKey&, auto&) {});
};

// An object whose keys are names of jobs, types and the like, in their order.
template <class T>
using Named = std::vector<std::pair<std::string, T>>;

// --- Jobs: `gavel queue`, `gavel why` ---

struct HeldAcceleratorRow {
  std::string server;
  std::string type;
  std::string uuid;
};
GAVEL_ROW(HeldAcceleratorRow, server, type, uuid)

struct GenerationRow {
  uint64_t epoch = 0;
  uint64_t step = 0;
};
GAVEL_ROW(GenerationRow, epoch, step)

// How the last process of a job that failed ended.
struct ExitRow {
  int failures = 0;  // in a row, up to now
  std::optional<int> exit_code;
  std::optional<int> signal;
};
GAVEL_ROW(ExitRow, failures, exit_code, signal)

struct QueueRow {
  uint64_t id = 0;
  std::string name;
  std::string state;  // PD R S CG CD F CA, see StateLetters
  std::string owner;  // empty: connections have no keys
  std::string app;
  std::string entity;
  double weight = 1;
  int scale_factor = 1;  // now; the bounds differ for elastic jobs
  int scale_factor_asked = 1;
  int scale_factor_min = 1;
  int scale_factor_max = 1;
  std::vector<HeldAcceleratorRow> accelerators;  // held now
  uint64_t steps_done = 0;
  uint64_t steps_total = 0;  // 0: until the program ends
  double steps_per_s = 0;    // 0: not known
  Named<double> scalars;
  double share_target = 0;
  double share_got = 0;
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  uint64_t epoch = 0;
  uint64_t incarnations = 0;
  std::optional<GenerationRow> last_generation;
  std::string reason;
  std::string memory;
  double submitted_at_s = 0;         // since 1970
  std::optional<double> ended_at_s;  // likewise
  double age_s = 0;
  double received_s = 0;
  int failures_in_a_row = 0;
  std::string checkpoint_directory;
  std::optional<ExitRow> exit;  // null: none has failed, or it has finished
  // The finish-time fairness of its app, with what the app holds; null: it
  // can't run, or no job of the listing names an app.
  std::optional<double> rho;
  // Seconds of its work that are left, alone where it is fastest; null: not
  // known, or it names no app.
  std::optional<double> left_s;
  std::string code;              // the name of `reason`, as in WhyRow
  std::string bidder;            // of its app: Engine::BidderText
  std::vector<uint64_t> awaits;  // jobs that it waits for, before it starts
  // An element of an array has the id and the name of the array, and its index.
  uint64_t array = 0;  // 0: it is none
  std::string array_name;
  std::optional<int> array_index;
  // It reports no steps and keeps its accelerators until its end, so no policy
  // has a share for it.
  bool opaque = false;
  // The values of its sweep, cut to 100 characters each, by the parameter in
  // small letters. Empty for others than its owner and operators, and of a job
  // that had ended before the coordinator started.
  Named<std::string> sweep;
  // Accelerator-seconds of work of its app that is in no job yet, as the app's
  // optimiser says; null: none, or its throughput is not known.
  std::optional<double> app_to_come_s;

  // Finished or cancelled.
  bool Over() const { return state == "CD" || state == "CA"; }
  // Or held until it is released.
  bool Ended() const { return Over() || state == "F"; }
};
GAVEL_ROW(QueueRow, id, name, state, owner, app, entity, weight, scale_factor,
          scale_factor_asked, scale_factor_min, scale_factor_max, accelerators,
          steps_done, steps_total, steps_per_s, scalars, share_target,
          share_got, pauses, moves, pausing_s, epoch, incarnations,
          last_generation, reason, memory, submitted_at_s, ended_at_s, age_s,
          received_s, failures_in_a_row, checkpoint_directory, exit, rho,
          left_s, code, bidder, awaits, array, array_name, array_index, opaque,
          sweep, app_to_come_s)

struct ThroughputRow {
  std::string type;
  double steps_per_s = 0;
  std::optional<double> given;  // by the job file
  std::string source;           // "guessed", "given", "measured", ...
};
GAVEL_ROW(ThroughputRow, type, steps_per_s, given, source)

struct LossRow {
  uint64_t steps = 0;
  double loss = 0;
};
GAVEL_ROW(LossRow, steps, loss)

// A job, or an array, for whose end a job waits or has waited.
struct ParentRow {
  uint64_t job = 0;       // its id, or the array's; 0: only the name is known
  bool is_array = false;  // `job` is an array's id
  std::string name;       // as the job's file has it, or as it is now
  bool must_finish = false;  // it is one of after_success
  bool is_awaited = false;   // it has not ended, or it failed
  // As in QueueRow; CA as soon as it is cancelled. Empty: it is an array, or
  // ended so long ago that the coordinator has forgotten it.
  std::string state = {};
};
GAVEL_ROW(ParentRow, job, is_array, name, must_finish, is_awaited, state)

struct WhyRow {
  uint64_t job = 0;
  std::string name;
  std::string state;
  std::string reason;
  std::string memory;
  std::string code;
  std::vector<ThroughputRow> throughputs;
  double share_target = 0;
  double share_got = 0;
  std::optional<int> place;   // in line
  std::optional<double> rho;  // as in QueueRow
  // "rho 1.31; bid for 2 v100; won 2; share kept 0.87"; empty: no auction.
  std::string auction;
  // As in QueueRow.
  uint64_t array = 0;
  std::optional<int> array_index;
  // The losses that rank 0 reported, thinned: LossHistory::points.
  std::vector<LossRow> losses;
  bool opaque = false;       // as in QueueRow
  Named<std::string> sweep;  // likewise
  // Other readers than its owner and operators get only those that are awaited.
  std::vector<ParentRow> parents;
  std::optional<double> app_to_come_s;  // as in QueueRow
};
GAVEL_ROW(WhyRow, job, name, state, reason, memory, code, throughputs,
          share_target, share_got, place, rho, auction, array, array_index,
          losses, opaque, sweep, parents, app_to_come_s)

// --- Servers: `gavel nodes` ---

struct AcceleratorRow {
  std::string type;
  std::string uuid;
  std::string device;
  double slow_down_factor = 1;
  std::string state;
  double speed = 1;  // below 1: a straggler, that part of its type's speed
  std::vector<uint64_t> jobs;           // two: a packed pair
  std::vector<uint64_t> kept_jobs;      // paused, still in its memory
  std::vector<uint64_t> starting_jobs;  // their processes have no lease
  bool drained = false;                 // by an operator
  std::optional<double> drain_in_s;     // jobs may stay until then, from now
  uint64_t memory_bytes = 0;
  std::string drained_for = "";  // by the coordinator: why
  // As its driver told last.
  std::optional<double> utilisation_percent = {};
  std::optional<double> temperature_c = {};
  std::optional<uint64_t> uncorrectable_errors = {};
  std::optional<uint64_t> last_xid = {};  // of its last fault
  std::string lost_for = "";              // why, and what to do
  bool exclusive = false;                 // of one process at a time
  std::string visibility = "all";         // "leased": as in a cluster file
};
GAVEL_ROW(AcceleratorRow, type, uuid, device, slow_down_factor, state, speed,
          jobs, kept_jobs, starting_jobs, drained, drain_in_s, memory_bytes,
          drained_for, utilisation_percent, temperature_c, uncorrectable_errors,
          last_xid, lost_for, exclusive, visibility)

struct NodeRow {
  std::string server;
  // idle, mixed, allocated, draining, drained, down
  std::string state;
  uint64_t parked_bytes = 0;  // of paused jobs in host memory
  std::vector<AcceleratorRow> accelerators;
};
GAVEL_ROW(NodeRow, server, state, parked_bytes, accelerators)

// --- The coordinator itself: `gavel status` ---

struct EntityRow {
  std::string name;
  double weight = 1;
  std::string policy;
};
GAVEL_ROW(EntityRow, name, weight, policy)

// Frames, messages and connections refused since the coordinator was started.
struct WireCounts {
  uint64_t frames_dropped = 0;       // that are no message, or none for us
  uint64_t messages_refused = 0;     // that their senders may not send
  uint64_t connections_refused = 0;  // handshakes; too many of a key or address
  uint64_t connections_cut = 0;      // for what they sent
  uint64_t handshakes_failed = 0;    // before any key was asked for
  friend bool operator==(const WireCounts&, const WireCounts&) = default;
};
GAVEL_ROW(WireCounts, frames_dropped, messages_refused, connections_refused,
          connections_cut, handshakes_failed)

struct ProfilingRow {
  double percentage_max = 0;
  int accelerators = 0;
  double accelerator_s = 0;
};
GAVEL_ROW(ProfilingRow, percentage_max, accelerators, accelerator_s)

struct FailuresRow {
  uint64_t workers_lost = 0;
  double busy_s = 0;      // of all workers
  double interval_s = 0;  // mean, of one worker; 0: not told
};
GAVEL_ROW(FailuresRow, workers_lost, busy_s, interval_s)

// Seconds that something took. counts[I] of them took up to limits_s[I], and
// more than the limit before; the last count is of those beyond all limits.
struct HistogramRow {
  std::vector<double> limits_s;
  std::vector<uint64_t> counts;
  double sum_s = 0;
};
GAVEL_ROW(HistogramRow, limits_s, counts, sum_s)

// Sums over jobs that are not over, for figures of which each reader needs all.
struct ReasonCountRow {
  std::string state;
  std::string code;
  uint64_t jobs = 0;
};
GAVEL_ROW(ReasonCountRow, state, code, jobs)

// A running job that has reported steps.
struct RunningRow {
  uint64_t id = 0;
  GenerationRow last_generation;  // zeros: it has none
};
GAVEL_ROW(RunningRow, id, last_generation)

// The sums over the active jobs of a user or an app of the shares of time,
// times workers, that they are to have and have received.
struct SharerRow {
  std::string name;   // of the user, or else of the entity; of the app
  std::string owner;  // of the app
  double target = 0;
  double got = 0;
  std::optional<double> rho;  // the greatest of its jobs
};
GAVEL_ROW(SharerRow, name, owner, target, got, rho)

struct JobTotalsRow {
  std::vector<ReasonCountRow> reasons;
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  uint64_t sharing = 0;      // active jobs that have a target share
  double deviation = 0;      // of their received shares from the targets: sum
  double deviation_max = 0;  // and the largest
  std::vector<RunningRow> running;
  // The sums of those jobs: at most kSharersMax of each, the greatest targets.
  std::vector<SharerRow> users;
  std::vector<SharerRow> apps;
};
inline constexpr size_t kSharersMax = 50;
GAVEL_ROW(JobTotalsRow, reasons, pauses, moves, pausing_s, sharing, deviation,
          deviation_max, running, users, apps)

// Leases of rank 0 since the coordinator was started.
struct StaysRow {
  uint64_t pauses = 0;   // ended at a boundary before the loop was over
  uint64_t moves = 0;    // began on another accelerator than the one before
  double pausing_s = 0;  // lost to saving, releasing and restoring
  // The same for each lease that ended, by how it began: "start", "return" to
  // its accelerator, "move".
  Named<HistogramRow> overhead;
};
GAVEL_ROW(StaysRow, pauses, moves, pausing_s, overhead)

struct StatusRow {
  uint64_t term = 0;
  uint64_t seq = 0;
  double now_s = 0;
  std::string policy;                        // that decides now
  std::optional<std::string> policy_option;  // the coordinator's own
  bool user_shares = false;
  bool app_shares = false;
  std::vector<EntityRow> entities;
  std::string mechanism;
  std::string queue;
  std::optional<double> memory_rounds;
  std::optional<double> reset_interval_s;
  std::optional<bool> placement_sensitive;
  bool introspection = false;
  uint64_t rounds = 0;
  std::optional<double> round_duration_s;
  double lease_duration_s = 0;
  std::optional<double> round_ends_in_s;
  // The outcome of the last solve; null when there was none.
  std::optional<std::string> outcome;
  std::optional<double> objective;
  std::optional<double> bound;
  std::optional<double> gap;
  std::optional<std::string> solver;
  std::string detail;
  WireCounts kept_out;
  ProfilingRow profiling;
  FailuresRow failures;
  std::vector<std::string> troubles;  // that a person has to see to
  Named<uint64_t> jobs;               // by state letters
  std::optional<double> solve_s;      // how long the last solve took
  uint64_t rows_unwritten = 0;        // of the journal: decided, not on disk
  StaysRow stays;
};
GAVEL_ROW(StatusRow, term, seq, now_s, policy, policy_option, user_shares,
          entities, mechanism, queue, memory_rounds, reset_interval_s,
          placement_sensitive, rounds, round_duration_s, lease_duration_s,
          round_ends_in_s, outcome, objective, bound, gap, solver, detail,
          kept_out, profiling, failures, troubles, jobs, app_shares,
          introspection, solve_s, rows_unwritten, stays)

// --- What a prediction needs: `gavel what-if`, `gavel policy --preview` ---

struct ReceivedRow {
  double since_reset_s = 0;
  double deficit_s = 0;
};
GAVEL_ROW(ReceivedRow, since_reset_s, deficit_s)

struct ForecastRow {
  uint64_t id = 0;
  std::string name;
  std::string app;
  std::string entity;
  std::string owner;
  double weight = 1;
  double owner_weight = 1;
  std::optional<double> deadline_s;
  int scale_factor = 1;
  std::optional<double> steps_left;   // null: until its program ends
  std::optional<double> time_left_s;  // of its time_limit; null: has none
  double age_s = 0;
  Named<double> throughputs;  // by accelerator type
  bool guessed = false;       // nobody has given or measured any of them
  double received_s = 0;
  Named<ReceivedRow> received;  // by accelerator type
  std::string workload;
  Named<std::string> sources;  // of `throughputs`, as in ThroughputRow
  bool opaque = false;         // as in QueueRow
  // The job is behind the queue (kWithWaiting). It `waits` for its parents, for
  // its time or for its turn in its array, or is `held` until its release.
  bool waits = false;
  bool held = false;
  std::vector<uint64_t> awaits;        // as in QueueRow
  std::optional<double> not_before_s;  // from now; null: it waits for no time
  uint64_t array = 0;                  // as in QueueRow
  int array_at_once = 0;               // of its elements; 0: no limit
  // It has accelerators in this round: it runs there, or its processes start.
  bool placed = false;
  std::vector<std::string> servers;  // as in its file
  std::vector<std::string> exclude_servers;
};
GAVEL_ROW(ForecastRow, id, name, app, entity, owner, weight, owner_weight,
          deadline_s, scale_factor, steps_left, time_left_s, age_s, throughputs,
          guessed, received_s, received, workload, sources, opaque, waits, held,
          awaits, not_before_s, array, array_at_once, placed, servers,
          exclude_servers)

// The filter of kForecast that adds the jobs which are not in the queue yet. A
// coordinator that does not know this filter leaves them out.
inline constexpr std::string_view kWithWaiting = R"({"waiting": true})";

// Null: there is none of that name.
template <class T>
const T* FindNamed(const Named<T>& values, std::string_view name) {
  for (const auto& [key, value] : values) {
    if (key == name) return &value;
  }
  return nullptr;
}

// A page holds rows up to this many bytes (and always one).
inline constexpr size_t kPageBytesMax = 48 * 1024;

// Bytes from elsewhere need not be UTF-8; what is not is replaced.
inline std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

// Rows as one JSON array of bounded length, for answers in pages. Not
// thread-safe.
class JsonPage {
 public:
  // False: the page is full, the row was not taken.
  bool Add(const nlohmann::ordered_json& row) { return AddText(DumpJson(row)); }
  // `text`: JSON of one row.
  bool AddText(std::string_view text) {
    if (rows_ > 0 && json_.size() + text.size() + 2 > kPageBytesMax) {
      return false;
    }
    StrAppend(&json_, rows_ == 0 ? "" : ",", text);
    ++rows_;
    return true;
  }
  std::string Take() { return json_ + "]"; }

 private:
  std::string json_ = "[";
  size_t rows_ = 0;
};

// Writes JSON directly as text, field by field or a whole row: a listing of
// thousands of rows takes a few microseconds for each. nlohmann::json can read
// the result; text with bytes other than printable ASCII goes through DumpJson.
// Not thread-safe.
class JsonText {
 public:
  void Begin(char bracket) {
    Separate();
    text_ += bracket;
    first_ = true;
  }
  void End(char bracket) {
    text_ += bracket;
    first_ = false;
  }

  void Value(std::string_view value) {
    Separate();
    if (std::ranges::all_of(value, IsPlain)) {
      const size_t begin = text_.size();
      text_.resize(begin + value.size() + 2, '"');
      std::ranges::copy(value, text_.begin() + begin + 1);
    } else {
      text_ += DumpJson(nlohmann::ordered_json(std::string(value)));
    }
  }
  void Value(const std::string& value) { Value(std::string_view(value)); }
  void Value(const char*) = delete;
  void Value(bool value) {
    Separate();
    text_ += value ? "true" : "false";
  }
  void Value(double value) {
    if (!std::isfinite(value)) return Null();
    Number(value);
  }
  template <std::integral T>
  void Value(T value) {
    Number(value);
  }
  void Null() {
    Separate();
    text_ += "null";
  }
  template <class T>
  void Value(const std::optional<T>& value) {
    value ? Value(*value) : Null();
  }
  template <class T>
  void Value(const std::vector<T>& values) {
    Begin('[');
    for (const T& value : values) Value(value);
    End(']');
  }
  template <class T>
  void Value(const Named<T>& values) {
    Begin('{');
    for (const auto& [name, value] : values) Field(name, value);
    End('}');
  }
  template <IsRow T>
  void Value(const T& row) {
    Begin('{');
    VisitFields(row, [this](const RowKey& key, const auto& member) {
      text_ += first_ ? key.json.substr(1) : key.json;
      first_ = true;
      Value(member);
    });
    End('}');
  }

  template <class T>
  void Field(std::string_view name, const T& value) {
    Value(name);
    text_ += ':';
    first_ = true;
    Value(value);
  }

  const std::string& text() const { return text_; }
  std::string Take() { return std::exchange(text_, {}); }
  // For the next value; keeps the memory.
  void Clear() {
    text_.clear();
    first_ = true;
  }

 private:
  static bool IsPlain(char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  }
  void Separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  template <class T>
  void Number(T value) {
    Separate();
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value);
    text_.append(digits, end.ptr);
  }

  std::string text_;
  bool first_ = true;
};

// Rows as JSON values: ToJson writes one, ReadJson reads one back.
// Large listings are written as text instead (JsonText). Pure, thread-safe.
namespace row_json {

using Json = nlohmann::ordered_json;

template <class T>
concept IsOptional = requires(T& value) {
  value.emplace();
  value.reset();
};
template <class T>
concept IsNamed = requires {
  typename T::value_type::second_type;
};
template <class T>
concept IsList = !std::same_as<T, std::string> && !IsNamed<T> && requires {
  typename T::value_type;
  typename T::reverse_iterator;
};

// Returns false when the JSON has another type; the value is then unchanged.
template <class T>
bool Read(const Json& json, T* value) {
  if constexpr (IsRow<T>) {
    if (!json.is_object()) return false;
    // A member that is missing or has another type keeps its default.
    VisitFields(*value, [&](const RowKey& key, auto& member) {
      const auto field = json.find(std::string(key.name));
      if (field != json.end()) Read(*field, &member);
    });
  } else if constexpr (IsNamed<T>) {
    if (!json.is_object()) return false;
    for (const auto& [name, element] : json.items()) {
      typename T::value_type::second_type read{};
      if (Read(element, &read)) value->emplace_back(name, std::move(read));
    }
  } else if constexpr (IsList<T>) {
    if (!json.is_array()) return false;
    // Rows of another type are rows of defaults, other values are left out.
    using Element = typename T::value_type;
    for (const Json& element : json) {
      Element read{};
      if (Read(element, &read) || IsRow<Element>) {
        value->push_back(std::move(read));
      }
    }
  } else if constexpr (IsOptional<T>) {
    typename T::value_type read{};
    if (!Read(json, &read)) return false;
    *value = std::move(read);
  } else {
    bool right = false;
    if constexpr (std::same_as<T, std::string>) {
      right = json.is_string();
    } else if constexpr (std::same_as<T, bool>) {
      right = json.is_boolean();
    } else if constexpr (std::same_as<T, double>) {
      right = json.is_number();
    } else if (json.is_number_unsigned()) {
      right = std::in_range<T>(json.get<uint64_t>());
    } else if (json.is_number_integer()) {
      right = std::in_range<T>(json.get<int64_t>());
    }
    if (right) *value = json.get<T>();
    return right;
  }
  return true;
}

}  // namespace row_json

// In the order of the members' list.
template <class T>
nlohmann::ordered_json ToJson(const T& value) {
  if constexpr (IsRow<T>) {
    auto object = row_json::Json::object();
    VisitFields(value, [&](const RowKey& key, const auto& member) {
      object[std::string(key.name)] = ToJson(member);
    });
    return object;
  } else if constexpr (row_json::IsNamed<T>) {
    auto object = row_json::Json::object();
    for (const auto& [name, element] : value) object[name] = ToJson(element);
    return object;
  } else if constexpr (row_json::IsList<T>) {
    auto list = row_json::Json::array();
    for (const auto& element : value) list.push_back(ToJson(element));
    return list;
  } else if constexpr (row_json::IsOptional<T>) {
    return value ? ToJson(*value) : row_json::Json();
  } else {
    return value;
  }
}

// A row, or a list of rows, of a coordinator that may be older or newer: what
// is missing or of another type is left at its default.
template <class T>
T ReadJson(const nlohmann::ordered_json& json) {
  T value{};
  row_json::Read(json, &value);
  return value;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ROWS_H_
