#include "coordinator/server/query/queue_view.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "coordinator/server/query/json_page.h"
#include "coordinator/server/query/json_text.h"
#include "coordinator/server/query/query.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/stopwatch.h"

namespace gavel {
namespace {

using Ended = std::pair<Time, JobId>;

struct Filter {
  std::set<std::string, std::less<>> states;  // empty: all
  std::optional<std::string> user;
  std::optional<std::string> name;
  std::optional<size_t> ended_max;
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
    } else if (key == "ended_max" && value.is_number_unsigned()) {
      filter.ended_max = value.get<size_t>();
    } else {
      return std::nullopt;
    }
  }
  return filter;
}

bool Passes(const JobView& job, const Filter& filter) {
  return (!filter.user || job.facts->owner == *filter.user) &&
         (!filter.name || job.facts->name == *filter.name) &&
         (filter.states.empty() || filter.states.contains(job.state));
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

}  // namespace

QueryReply ListQueue(const QueryRequest& request, const QueueView& view,
                     const Identity& reader) {
  QueryReply reply;
  reply.request = request.request;
  const std::optional<Filter> filter = ReadFilter(request.filter, reader.name);
  if (!filter.has_value()) {
    reply.error = StrCat("\"", request.filter, "\" is no filter of the queue");
    return reply;
  }
  const std::optional<Ended> first = FirstEnded(view, *filter);
  const WaitingLine& line = view.line->Get();
  JsonPage page;
  QueueRow row;
  JsonText text;
  uint64_t last = request.cursor;
  auto job = std::ranges::upper_bound(
      view.jobs, JobId(request.cursor), {},
      [](const std::shared_ptr<const JobView>& one) { return one->id; });
  for (; job != view.jobs.end(); ++job) {
    const JobView& one = **job;
    if (!Passes(one, *filter)) continue;
    if (first && one.over && Ended{one.ended_at, one.id} < *first) continue;
    FillQueueRow(one, line, view.now, reader, &row);
    text.Clear();
    text.Value(row);
    if (!page.AddText(text.text())) {
      reply.next_cursor = last;
      break;
    }
    last = one.id.value();
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

std::shared_ptr<const QueueView> QueueViews::Make(Time now) {
  const Stopwatch work;
  auto view = std::make_shared<QueueView>();
  view->now = now;
  view->line = Line(now);
  view->jobs.reserve(engine_.jobs().size());
  static const std::vector<std::shared_ptr<const JobView>> kNone;
  const auto& jobs_before = last_ == nullptr ? kNone : last_->jobs;
  auto before = jobs_before.begin();
  for (const auto& [id, job] : engine_.jobs()) {
    while (before != jobs_before.end() && (*before)->id < id) ++before;
    const bool known = before != jobs_before.end() && (*before)->id == id;
    if (known && (*before)->settled) {
      view->jobs.push_back(*before);  // nothing changes any more
      continue;
    }
    view->jobs.push_back(std::make_shared<const JobView>(
        ViewOf(job, engine_, now, known ? (*before)->facts : nullptr)));
  }
  last_ = std::move(view);
  due_at_ = now + kPause * work.elapsed_s();
  return last_;
}

std::shared_ptr<const QueueView> QueueViews::ForPage(
    Time now, const QueryRequest& request) const {
  const bool goes_on = request.cursor != 0 && last_ != nullptr &&
                       now - last_->now <= kListingAge_s;
  return goes_on ? last_ : nullptr;
}

const Named<uint64_t>& QueueViews::CountsAt(Time now) {
  if (now < counts_due_at_) return counts_;
  const Stopwatch work;
  counts_ = CountStates(engine_.jobs());
  counts_due_at_ = now + kPause * work.elapsed_s();
  return counts_;
}

std::shared_ptr<PlanLine> QueueViews::Line(Time now) {
  if (line_ == nullptr) {
    line_ = std::make_shared<PlanLine>(engine_.LineRows(now),
                                       engine_.cluster().types(),
                                       engine_.options().round_duration_s);
  }
  return line_;
}

}  // namespace gavel
