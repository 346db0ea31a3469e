#include "coordinator/server/queue_view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/server/query.h"
#include "coordinator/server/rows.h"
#include "coordinator/workload/job_array.h"
#include "core/error_line.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

bool IsOver(const Job& job) {
  return job.state == JobState::kFinished || job.state == JobState::kCancelled;
}

JobProgress Summarise(const Job& job) {
  JobProgress sum;
  for (const Worker& worker : job.workers) {
    const Progress& progress = worker.progress;
    const bool first = &worker == &job.workers.front();
    const double steps_per_s =
        worker.held_epoch != 0 ? progress.throughput_steps_per_s : 0;
    sum.steps_done = first ? progress.steps_done
                           : std::min(sum.steps_done, progress.steps_done);
    sum.steps_per_s =
        first ? steps_per_s : std::min(sum.steps_per_s, steps_per_s);
    sum.incarnations = std::max(sum.incarnations, worker.incarnation);
    sum.last_generation =
        std::max(sum.last_generation, progress.last_generation);
  }
  sum.pauses = job.stays.pauses();
  sum.moves = job.stays.moves();
  sum.pausing_s = job.stays.pausing_s();
  return sum;
}

// The time that is booked, plus the time that the job's workers have run since.
double ReceivedSeconds(const Job& job, Time now) {
  double seconds = job.received_s;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    seconds += std::max(0.0, now - worker.accrued_at) / worker.world_size;
  }
  return seconds;
}

// "the agent of server s1 can't be reached": of the first of its workers.
// Leases go on without the agent, as long as their processes renew them.
std::string OutOfReach(const Job& job, const Engine& engine) {
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    const auto agent = engine.agents().find(worker.server);
    if (agent != engine.agents().end() && agent->second.reachable) continue;
    return StrCat("the agent of server ", worker.server, " can't be reached");
  }
  return "";
}

// Where its tensors are, and what else there is to say of why it is there.
std::string NotesOf(const Job& job, const JobView& view, const Engine& engine) {
  std::string notes;
  const auto add = [&notes](const std::string& part) {
    if (!part.empty()) StrAppend(&notes, "; ", part);
  };
  if (job.active()) add(RenderResize(job));
  if (job.active()) add(engine.TrialNotes(job));
  const bool is_starting =
      std::holds_alternative<reason::Starting>(view.reason);  // says it itself
  if (job.active() && !is_starting) add(engine::FailuresText(job));
  if (job.active()) add(OutOfReach(job, engine));
  add(view.memory);
  // Nothing was measured of a job that has never run.
  const bool ran = view.progress.incarnations > 0;
  if (job.active() && ran) add(engine.ThroughputNotes(job));
  return notes;
}

// A row with them fits into a page.
constexpr size_t kSweepValueMax = 100;
constexpr size_t kSweepShownMax = 32;

Named<std::string> SweepOf(const JobSpec& spec) {
  Named<std::string> values;
  for (const auto& [name, value] : spec.environment) {
    if (!name.starts_with(kSweepPrefix)) continue;
    if (values.size() == kSweepShownMax) break;
    values.emplace_back(
        ToStd(absl::AsciiStrToLower(ToAbsl(name.substr(kSweepPrefix.size())))),
        PrintableLine(value, kSweepValueMax));
  }
  return values;
}

JobFacts FactsOf(const Job& job) {
  const JobSpec& spec = job.spec;
  return {spec.name,
          spec.app,
          spec.entity,
          spec.owner,
          spec.checkpoint_directory,
          spec.weight,
          spec.scale_factor,
          spec.LeastWorkers(),
          spec.MostWorkers(),
          spec.steps_total,
          job.array,
          std::string(job.array.valid() ? ArrayNameOf(spec.name) : ""),
          job.array_index,
          spec.opaque(),
          job.array.valid() ? SweepOf(spec) : Named<std::string>()};
}

// Compares the facts that an operator can change.
bool Hold(const JobFacts& facts, const Job& job) {
  const JobSpec& spec = job.spec;
  return facts.weight == spec.weight && facts.entity == spec.entity &&
         facts.scale_factor_asked == spec.scale_factor &&
         facts.scale_factor_min == spec.LeastWorkers() &&
         facts.scale_factor_max == spec.MostWorkers() &&
         facts.steps_total == spec.steps_total;
}

// By its lease, or as its process was launched there and has yet to speak.
AcceleratorId Kept(const Worker& worker) {
  return worker.held_epoch != 0 ? worker.held : worker.launched_on;
}

std::vector<HeldAcceleratorRow> HeldBy(const Job& job, const Cluster& cluster) {
  std::vector<HeldAcceleratorRow> held;
  for (const Worker& worker : job.workers) {
    const AcceleratorId place = Kept(worker);
    if (!place.valid()) continue;
    if (held.size() == kAcceleratorsPerRowMax) break;
    const Accelerator& accelerator = cluster.accelerator(place);
    held.push_back(
        {accelerator.server, accelerator.info.type, accelerator.info.uuid});
  }
  return held;
}

std::string TextOf(const JobView& job, const Reason& reason, bool may_read) {
  std::string text = StrCat(RenderReason(reason), job.notes);
  if (may_read && !job.last_error.empty()) {
    StrAppend(&text, "; its last error: \"", job.last_error, "\"");
  }
  return text;
}

Reason ReasonFor(const JobView& job, const WaitingLine& line, bool may_read) {
  Reason reason = may_read ? job.reason : ForOthers(job.reason);
  line.Tell(job.id, &reason);
  return reason;
}

std::optional<ExitRow> ExitOf(const JobView& job) {
  const bool failed = job.last_end != 0 || job.failures_in_a_row > 0;
  if (const auto* end = std::get_if<reason::FinishedWith>(&job.reason)) {
    ExitRow exit;
    exit.exit_code = end->exit_code;
    return exit;
  }
  const bool unstarted = std::holds_alternative<reason::HeldLaunch>(job.reason);
  if (!failed || unstarted || job.state == "CD") return std::nullopt;
  ExitRow exit;
  exit.failures = job.failures_in_a_row;
  (job.last_end >= 0 ? exit.exit_code : exit.signal) = std::abs(job.last_end);
  return exit;
}

using Ended = std::pair<Time, JobId>;

struct Filter {
  std::set<std::string, std::less<>> states;  // empty: all
  std::optional<std::string> user;
  std::optional<std::string> name;
  std::optional<std::string> app;
  std::optional<uint64_t> array;
  std::optional<int> array_index;
  std::optional<size_t> ended_max;
  bool one_of_array = false;
  bool totals = false;
};

std::optional<Filter> ReadFilter(const std::string& text,
                                 const std::string& reader) {
  Filter filter;
  if (text.empty()) return filter;
  const nlohmann::json json =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  for (const auto& [key, value] : json.items()) {
    if (key == "states" && value.is_array()) {
      for (const nlohmann::json& state : value) {
        if (!state.is_string()) return std::nullopt;
        filter.states.insert(state.get<std::string>());
      }
    } else if (key == "user" && value.is_string()) {
      filter.user = value.get<std::string>();
    } else if (key == "own" && value == true) {
      filter.user = reader;
    } else if (key == "name" && value.is_string()) {
      filter.name = value.get<std::string>();
    } else if (key == "app" && value.is_string()) {
      filter.app = value.get<std::string>();
    } else if (key == "array" && value.is_number_unsigned()) {
      filter.array = value.get<uint64_t>();
    } else if (key == "array_index" && value.is_number_unsigned()) {
      filter.array_index = value.get<int>();
    } else if (key == "ended_max" && value.is_number_unsigned()) {
      filter.ended_max = value.get<size_t>();
    } else if (key == "one_of_array" && value == true) {
      filter.one_of_array = true;
    } else if (key == "totals" && value == true) {
      filter.totals = true;
    } else {
      return std::nullopt;
    }
  }
  return filter;
}

bool Passes(const JobView& job, const Filter& filter) {
  return (!filter.user || job.facts->owner == *filter.user) &&
         (!filter.name || job.facts->name == *filter.name ||
          (job.facts->array.valid() &&
           job.facts->array_name == *filter.name)) &&
         (!filter.array || job.facts->array == JobId(*filter.array)) &&
         (!filter.array_index ||
          (job.facts->array.valid() &&
           job.facts->array_index == *filter.array_index)) &&
         (!filter.app || job.facts->app == *filter.app) &&
         (filter.states.empty() || filter.states.contains(job.state));
}

using Sharers = std::map<std::pair<std::string, std::string>, SharerRow>;

void AddSharer(const std::string& name, const std::string& owner,
               const JobView& job, std::optional<double> rho,
               Sharers* sharers) {
  SharerRow& sum = (*sharers)[{owner, name}];
  sum.name = name;
  sum.owner = owner;
  sum.target += job.shares.target * job.scale_factor;
  sum.got += job.shares.received * job.scale_factor;
  if (rho) sum.rho = std::max(*rho, sum.rho.value_or(*rho));
}

std::vector<SharerRow> Largest(Sharers sharers) {
  std::vector<SharerRow> rows;
  for (auto& [key, sharer] : sharers) rows.push_back(std::move(sharer));
  std::ranges::stable_sort(rows, std::greater<>(), &SharerRow::target);
  if (rows.size() > kSharersMax) rows.resize(kSharersMax);
  return rows;
}

JobTotalsRow TotalsOf(const QueueView& view, const Filter& filter,
                      const WaitingLine& line) {
  JobTotalsRow totals;
  std::map<std::pair<std::string_view, std::string_view>, uint64_t> reasons;
  Sharers users;
  Sharers apps;
  for (const std::shared_ptr<const JobView>& one : view.jobs) {
    const JobView& job = *one;
    if (job.over || !Passes(job, filter)) continue;
    const Reason reason = ReasonFor(job, line, /*may_read=*/false);
    ++reasons[{job.state, ReasonName(reason)}];
    totals.pauses += job.progress.pauses;
    totals.moves += job.progress.moves;
    totals.pausing_s += job.progress.pausing_s;
    // A job that keeps its accelerators until its end has no target.
    if (job.state == "F" || job.facts->opaque) continue;
    const double off = std::abs(job.shares.received - job.shares.target);
    totals.deviation += off;
    totals.deviation_max = std::max(totals.deviation_max, off);
    ++totals.sharing;
    const JobFacts& facts = *job.facts;
    const std::optional<double> rho = view.RhoOf(job.id);
    AddSharer(facts.owner.empty() ? facts.entity : facts.owner, "", job, rho,
              &users);
    if (!facts.app.empty()) AddSharer(facts.app, facts.owner, job, rho, &apps);
    if (job.state != "R" || job.progress.steps_done == 0) continue;
    const Generation last = job.progress.last_generation;
    totals.running.push_back({job.id.value(), {last.epoch, last.step}});
  }
  for (const auto& [key, jobs] : reasons) {
    totals.reasons.push_back(
        {std::string(key.first), std::string(key.second), jobs});
  }
  totals.users = Largest(std::move(users));
  totals.apps = Largest(std::move(apps));
  return totals;
}

// The first of the latest ones, of those that pass; nullopt: all of them.
std::optional<Ended> FirstEnded(const QueueView& view, const Filter& filter) {
  if (!filter.ended_max) return std::nullopt;
  std::vector<Ended> ended;
  for (const auto& job : view.jobs) {
    if (job->over && Passes(*job, filter)) {
      ended.emplace_back(job->ended_at, job->id);
    }
  }
  if (ended.size() <= *filter.ended_max) return std::nullopt;
  if (*filter.ended_max == 0) return Ended{kNever, JobId()};
  const auto first = ended.end() - static_cast<ptrdiff_t>(*filter.ended_max);
  std::ranges::nth_element(ended, first);
  return *first;
}

// By array, the element that stands for it; empty unless the filter wants that.
std::map<JobId, const JobView*> ElementsToList(const QueueView& view,
                                               const Filter& filter) {
  std::map<JobId, const JobView*> elements;
  if (!filter.one_of_array) return elements;
  for (const std::shared_ptr<const JobView>& job : view.jobs) {
    if (!job->facts->array.valid() || !Passes(*job, filter)) continue;
    const JobView*& element = elements[job->facts->array];
    if (element == nullptr || (element->over && !job->over)) {
      element = job.get();
    }
  }
  return elements;
}

}  // namespace

JobView ViewOf(const Job& job, const Engine& engine, Time now,
               std::shared_ptr<const JobFacts> before) {
  JobView view;
  view.id = job.id;
  view.facts = before != nullptr && Hold(*before, job)
                   ? std::move(before)
                   : std::make_shared<const JobFacts>(FactsOf(job));
  view.state = StateLetters(job);
  view.reason = engine.WhyUnranked(job.id, now);
  view.memory = engine.MemoryText(job);
  view.scale_factor = job.scale_factor;
  view.progress = Summarise(job);
  view.notes = NotesOf(job, view, engine);
  view.held = HeldBy(job, engine.cluster());
  if (!job.workers.empty()) {
    const auto& scalars = job.workers.front().progress.scalars;
    view.scalars.assign(scalars.begin(), scalars.end());
  }
  view.shares = engine.SharesOf(job.id, now);
  view.received_s = ReceivedSeconds(job, now);
  if (!job.spec.app.empty()) {
    view.left_s = engine.SecondsLeft(job, now);
    view.app_to_come_s = engine.AppToCome(job);
    view.bidder = engine.BidderText(job);
  }
  for (const Parent& parent : job.parents) view.awaits.push_back(parent.job);
  view.submitted_at = job.submitted_at;
  view.ended_at = job.ended_at;
  // Jobs of an earlier version have none.
  const double offset_s = engine.options().wall_offset_s;
  view.submitted_wall_s = job.submitted_wall_s > 0
                              ? job.submitted_wall_s
                              : job.submitted_at + offset_s;
  view.ended_wall_s =
      job.ended_wall_s > 0 ? job.ended_wall_s : job.ended_at + offset_s;
  view.over = IsOver(job);
  view.settled = view.over && !job.live;
  view.epoch = job.epoch;
  view.failures_in_a_row = job.failures_in_a_row;
  if (job.active() && job.failures_in_a_row > 0) {
    view.last_error = job.last_error;
  }
  view.last_end = job.last_end;
  return view;
}

std::string AuctionText(const Job& job, const Engine& engine) {
  const AppBid* bid = engine.BidOf(job);
  if (bid == nullptr) return "";
  std::string text = absl::StrFormat("rho %.2f", bid->rho);
  if (bid->own) text += " by its own bid";
  const std::string bidder = engine.BidderText(job);
  if (!bidder.empty() && bidder != "itself") {
    StrAppend(&text, "; the coordinator acted for it, because ", bidder);
  }
  if (!bid->offered) {
    return text + "; not among the worst-off, so it gets what they leave";
  }
  const std::vector<std::string>& types = engine.cluster().types();
  const auto type = static_cast<size_t>(bid->type);
  if (bid->bid == 0 || type >= types.size()) return text + "; bid, won nothing";
  StrAppend(&text, "; bid for ", bid->bid, " ", types[type],
            bid->given > 0 ? StrCat("; won ", bid->given) : "; won none of it",
            absl::StrFormat("; share kept %.2f", bid->kept));
  return text;
}

std::vector<ParentRow> ParentsOf(const Job& job, const Engine& engine) {
  std::vector<ParentRow> parents;
  std::set<std::string> listed;  // by each name that a file may have
  const auto add = [&](JobId id, bool must_finish, bool is_awaited) {
    ParentRow row{id.value(), false, "", must_finish, is_awaited};
    if (const Job* const parent = engine.FindJob(id)) {
      row.name = parent->spec.name;
      row.state =
          parent->state == JobState::kCancelled ? "CA" : StateLetters(*parent);
      listed.insert(ShownId(*parent));
    } else if (const Job* first = FirstElement(engine.jobs(), id)) {
      row.is_array = true;
      row.name = ArrayNameOf(first->spec.name);
    }
    listed.insert(row.name);
    listed.insert(StrCat(id.value()));
    parents.push_back(std::move(row));
  };
  for (const Parent& parent : job.parents) {
    add(parent.job, parent.must_finish, /*is_awaited=*/true);
  }
  const auto add_named = [&](const std::string& name, bool must_finish) {
    if (!listed.insert(name).second) return;
    uint64_t number = 0;
    const JobId id = absl::SimpleAtoi(name, &number)
                         ? JobId(number)
                         : engine.LatestNamed(job.spec.owner, name);
    // A later job of that name is not the parent.
    if (id.valid() && (number > 0 || id < job.id)) {
      add(id, must_finish, /*is_awaited=*/false);
    } else {
      parents.push_back({0, false, name, must_finish, false});
    }
  };
  for (const std::string& name : job.spec.after_success) add_named(name, true);
  for (const std::string& name : job.spec.after_any) add_named(name, false);
  return parents;
}

void FillQueueRow(const JobView& job, const WaitingLine& line, Time now,
                  const Identity& reader, QueueRow* row) {
  const JobFacts& facts = *job.facts;
  const bool may_read = MayTouch(reader, facts.owner);
  const Reason reason = ReasonFor(job, line, may_read);
  row->id = job.id.value();
  row->name = facts.name;
  row->state = job.state;
  row->owner = facts.owner;
  row->app = facts.app;
  row->entity = facts.entity;
  row->weight = facts.weight;
  row->scale_factor = job.scale_factor;
  row->scale_factor_asked = facts.scale_factor_asked;
  row->scale_factor_min = facts.scale_factor_min;
  row->scale_factor_max = facts.scale_factor_max;
  row->accelerators = job.held;
  row->steps_done = job.progress.steps_done;
  row->steps_total = facts.steps_total;
  row->steps_per_s = job.progress.steps_per_s;
  row->scalars = job.scalars;
  row->share_target = job.shares.target;
  row->share_got = job.shares.received;
  row->pauses = job.progress.pauses;
  row->moves = job.progress.moves;
  row->pausing_s = job.progress.pausing_s;
  row->epoch = job.epoch;
  row->incarnations = job.progress.incarnations;
  const Generation generation = job.progress.last_generation;
  row->last_generation.reset();
  if (generation != Generation{}) {
    row->last_generation = {generation.epoch, generation.step};
  }
  row->reason = TextOf(job, reason, may_read);
  row->code = ReasonName(reason);
  row->memory = job.memory;
  row->submitted_at_s = job.submitted_wall_s;
  row->ended_at_s.reset();
  if (job.over) row->ended_at_s = job.ended_wall_s;
  row->age_s = (job.over ? job.ended_at : now) - job.submitted_at;
  row->received_s = job.received_s;
  row->rho = job.rho;
  row->bidder = job.bidder;
  row->awaits.clear();
  for (const JobId parent : job.awaits) row->awaits.push_back(parent.value());
  row->left_s = job.left_s;
  row->app_to_come_s = job.app_to_come_s;
  row->failures_in_a_row = job.failures_in_a_row;
  row->checkpoint_directory = may_read ? facts.checkpoint_directory : "";
  row->exit = ExitOf(job);
  row->array = facts.array.value();
  row->array_name = facts.array_name;
  row->opaque = facts.opaque;
  row->array_index.reset();
  if (facts.array.valid()) row->array_index = facts.array_index;
  row->sweep = may_read ? facts.sweep : Named<std::string>();
}

std::vector<ThroughputRow> ThroughputsOf(const Job& job, const Engine& engine) {
  std::vector<ThroughputRow> list;
  if (IsOver(job)) return list;
  for (const std::string& type : engine.cluster().types()) {
    const Throughput known = engine.throughputs().Get(job.id, type);
    const auto given = job.spec.throughputs.find(type);
    ThroughputRow row;
    row.type = type;
    row.steps_per_s = known.steps_per_s;
    if (given != job.spec.throughputs.end()) row.given = given->second;
    row.source = SourceOf(job, type, engine);
    list.push_back(std::move(row));
  }
  return list;
}

WhyRow WhyRowOf(const JobView& job, const WaitingLine& line,
                const Identity& reader,
                std::vector<ThroughputRow> throughputs) {
  const bool may_read = MayTouch(reader, job.facts->owner);
  const Reason reason = ReasonFor(job, line, may_read);
  WhyRow row;
  row.job = job.id.value();
  row.name = job.facts->name;
  row.state = job.state;
  row.reason = TextOf(job, reason, may_read);
  row.memory = job.memory;
  row.code = ReasonName(reason);
  row.throughputs = std::move(throughputs);
  row.share_target = job.shares.target;
  row.share_got = job.shares.received;
  row.rho = job.rho;
  row.app_to_come_s = job.app_to_come_s;
  row.auction = job.auction;
  row.array = job.facts->array.value();
  if (job.facts->array.valid()) row.array_index = job.facts->array_index;
  row.losses = job.losses;
  row.opaque = job.facts->opaque;
  if (may_read) row.sweep = job.facts->sweep;
  for (const ParentRow& parent : job.parents) {
    if (may_read || parent.is_awaited) row.parents.push_back(parent);
  }
  if (const auto* in_line = std::get_if<reason::Priority>(&reason)) {
    row.place = in_line->place;
  }
  return row;
}

std::optional<double> QueueView::RhoOf(JobId job) const {
  if (rho == nullptr) return std::nullopt;
  const auto found = rho->Get().find(job);
  return found == rho->Get().end() ? std::nullopt
                                   : std::optional(found->second);
}

QueryReply ListQueue(const QueryRequest& request, const QueueView& view,
                     const Identity& reader) {
  QueryReply reply;
  reply.request = request.request;
  const std::optional<Filter> filter = ReadFilter(request.filter, reader.name);
  if (!filter.has_value()) {
    reply.error = StrCat("\"", request.filter, "\" is no filter of the queue");
    return reply;
  }
  const WaitingLine& line = view.line->Get();
  if (filter->totals) {
    JsonText text;
    text.Value(TotalsOf(view, *filter, line));
    reply.json = text.text();
    return reply;
  }
  const std::optional<Ended> first = FirstEnded(view, *filter);
  const auto elements = ElementsToList(view, *filter);
  JsonPage page;
  QueueRow row;
  JsonText text;
  ListingCursor last = {view.number, ListingCursor::Read(request.cursor).job};
  auto job = std::ranges::upper_bound(
      view.jobs, last.job, {},
      [](const std::shared_ptr<const JobView>& one) { return one->id; });
  for (; job != view.jobs.end(); ++job) {
    const JobView& one = **job;
    if (!Passes(one, *filter)) continue;
    if (first && one.over && Ended{one.ended_at, one.id} < *first) continue;
    const auto element = elements.find(one.facts->array);
    if (element != elements.end() && element->second != &one) continue;
    FillQueueRow(one, line, view.now, reader, &row);
    row.rho = view.RhoOf(one.id);
    text.Clear();
    text.Value(row);
    if (!page.AddText(text.text())) {
      reply.next_cursor = last.Write();
      break;
    }
    last.job = one.id;
  }
  reply.json = page.Take();
  return reply;
}

QueryReply AnswerOfJob(const QueryRequest& request, const Identity& reader,
                       const JobView& job,
                       const std::vector<ThroughputRow>& throughputs,
                       const WaitingLine& line, Time now) {
  QueryReply reply;
  reply.request = request.request;
  JsonText json;
  if (request.kind == QueryKind::kWhy) {
    json.Value(WhyRowOf(job, line, reader, throughputs));
  } else {
    std::vector<QueueRow> rows(1);
    FillQueueRow(job, line, now, reader, &rows.front());
    json.Value(rows);
  }
  reply.json = json.Take();
  return reply;
}

void QueueViews::NoteHolder(JobId job) {
  if (!is_making() || making_->view->jobs.empty()) return;
  const bool is_copied = job <= making_->view->jobs.back()->id;
  if (is_copied) making_->changed_holders.push_back(job);
}

std::shared_ptr<const QueueView> QueueViews::Advance(Time now) {
  const size_t types = engine_.cluster().types().size();
  // A type has joined: the rows have too few columns.
  if (is_making() && making_->types != types) making_.reset();
  if (!is_making()) Begin();
  const Stopwatch work;
  const bool all = CopySome(now);
  if (all) Complete(now);
  making_->work_s += work.elapsed_s();
  if (!all) return nullptr;
  due_at_ = now + kPause * making_->work_s;
  making_.reset();
  return kept_.back();
}

void QueueViews::Begin() {
  making_ = std::make_unique<Making>();
  making_->view = std::make_shared<QueueView>();
  making_->view->line = line_;
  making_->view->jobs.reserve(engine_.jobs().size());
  if (!kept_.empty()) making_->before = kept_.back();
  making_->types = engine_.cluster().types().size();
  if (engine_.HasApps()) making_->rho = engine_.EmptyRhoProblem();
  if (line_ != nullptr) return;
  making_->rows.emplace(making_->types);
  planned_ = false;
}

bool QueueViews::CopySome(Time now) {
  const Stopwatch work;
  const auto& copied = making_->view->jobs;
  const std::map<JobId, Job>& jobs = engine_.jobs();
  auto next =
      copied.empty() ? jobs.begin() : jobs.upper_bound(copied.back()->id);
  for (; next != jobs.end(); ++next) {
    Copy(next->second, now);
    if (work.elapsed_s() >= slice_s_) return std::next(next) == jobs.end();
  }
  return true;
}

void QueueViews::Copy(const Job& job, Time now) {
  Making& making = *making_;
  std::shared_ptr<const JobView> known;
  if (making.before != nullptr) {
    const auto& before = making.before->jobs;
    while (making.passed < before.size() &&
           before[making.passed]->id < job.id) {
      ++making.passed;
    }
    const bool is_there =
        making.passed < before.size() && before[making.passed]->id == job.id;
    if (is_there) known = before[making.passed];
  }
  // Nothing changes any more of one that is settled.
  if (known == nullptr || !known->settled) {
    known = std::make_shared<const JobView>(
        ViewOf(job, engine_, now, known == nullptr ? nullptr : known->facts));
  }
  making.view->jobs.push_back(std::move(known));
  if (making.rows) engine_.AddToLine(job, now, *making.rows);
  if (making.rho) engine_.AddToRho(job, now, *making.rho);
}

void QueueViews::Complete(Time now) {
  QueueView& view = *making_->view;
  for (const JobId id : making_->changed_holders) {
    const Job* const job = engine_.FindJob(id);
    const auto copied = std::ranges::lower_bound(
        view.jobs, id, {}, [](const auto& one) { return one->id; });
    if (job == nullptr || copied == view.jobs.end() || (*copied)->id != id) {
      continue;
    }
    *copied = std::make_shared<const JobView>(
        ViewOf(*job, engine_, now, (*copied)->facts));
  }
  if (making_->rows) {
    engine_.FinishLine(now, *making_->rows);
    view.line = std::make_shared<PlanLine>(
        [rows = *std::move(making_->rows), types = engine_.cluster().types(),
         round_s = engine_.options().round_duration_s] {
          return WaitingLine(rows, types, round_s);
        });
    if (!planned_) line_ = view.line;
  }
  if (making_->rho) {
    view.rho = std::make_shared<JobsRho>(
        [rho = *std::move(making_->rho)] { return RhoOfJobs(rho); });
  }
  view.now = now;
  last_number_ = (last_number_ + 1) % ListingCursor::kViews;
  view.number = last_number_;
  kept_.push_back(making_->view);
  while (kept_.size() > kKept || now - kept_.front()->now > kListingAge_s) {
    dropped_.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
}

std::shared_ptr<const QueueView> QueueViews::Recent(Time now) const {
  const bool is_young =
      !kept_.empty() && now - kept_.back()->now <= kListingAge_s;
  return is_young ? kept_.back() : nullptr;
}

std::shared_ptr<const QueueView> QueueViews::ForPage(uint64_t cursor,
                                                     Time now) const {
  const auto found = std::ranges::find(
      kept_, ListingCursor::Read(cursor).view,
      [](const std::shared_ptr<const QueueView>& one) { return one->number; });
  const bool is_young =
      found != kept_.end() && now - (*found)->now <= kListingAge_s;
  return is_young ? *found : Recent(now);
}

bool QueueViews::HasLargeApp(const Job& job) const {
  constexpr size_t kLarge = 100;
  return job.active() && engine_.JobsOfApp(job) > kLarge;
}

JobView QueueViews::MakeOne(const Job& job, Time now) const {
  JobView view = ViewOf(job, engine_, now, nullptr);
  if (!HasLargeApp(job)) {
    const auto rho_of = RhoOfJobs(engine_.RhoProblemOfApp(now, job));
    if (const auto rho = rho_of.find(job.id); rho != rho_of.end()) {
      view.rho = rho->second;
    }
  }
  view.auction = AuctionText(job, engine_);
  view.parents = ParentsOf(job, engine_);
  for (const auto& [steps, loss] : job.losses.points()) {
    view.losses.push_back({steps, loss});
  }
  return view;
}

bool QueueViews::CountSome(Time now) {
  constexpr int kAtOnce = 64;  // between two looks at the clock
  if (!is_counting()) counting_ = Counting{JobId(), NoCounts()};
  const Stopwatch work;
  const std::map<JobId, Job>& jobs = engine_.jobs();
  auto next = jobs.upper_bound(counting_->last);
  while (next != jobs.end() && work.elapsed_s() < slice_s_) {
    for (int i = 0; i < kAtOnce && next != jobs.end(); ++i, ++next) {
      CountState(next->second, &counting_->counts);
      counting_->last = next->first;
    }
  }
  counting_->work_s += work.elapsed_s();
  if (next != jobs.end()) return false;
  counts_ = std::move(counting_->counts);
  counts_due_at_ = now + kPause * counting_->work_s;
  counting_.reset();
  return true;
}

}  // namespace gavel
