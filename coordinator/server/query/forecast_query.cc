#include <algorithm>
#include <limits>

#include "coordinator/server/query/json_page.h"
#include "coordinator/server/query/query.h"
#include "coordinator/server/query/row_json.h"

namespace gavel {
namespace {

// Of the slowest rank, and what it has done since it told.
double StepsDone(const Job& job, Time now) {
  double least = std::numeric_limits<double>::infinity();
  for (const Worker& worker : job.workers) {
    double steps = static_cast<double>(worker.progress.steps_done);
    if (worker.held_epoch != 0) {
      steps += worker.progress.throughput_steps_per_s *
               std::max(0.0, now - worker.progress_at);
    }
    least = std::min(least, steps);
  }
  return job.workers.empty() ? 0 : least;
}

ForecastRow RowOf(const Job& job, const QueryView& view) {
  const JobSpec& spec = job.spec;
  ForecastRow row;
  row.id = job.id.value();
  row.name = spec.name;
  row.app = spec.app;
  row.entity = spec.entity;
  row.owner = spec.owner;
  row.weight = spec.weight;
  row.owner_weight = spec.owner_weight;
  row.deadline_s = spec.deadline_s;
  row.scale_factor = job.scale_factor;
  if (spec.steps_total > 0) {
    row.steps_left = std::max(
        1.0, static_cast<double>(spec.steps_total) - StepsDone(job, view.now));
  }
  row.age_s = view.now - job.submitted_at;
  for (const std::string& type : view.engine.cluster().types()) {
    row.throughputs.emplace_back(
        type, view.engine.throughputs().Get(job.id, type).steps_per_s);
  }
  const event::Received received = view.engine.ReceivedOf(job.id, view.now);
  row.received_s = received.total_s;
  for (const event::Received::OnType& on : received.types) {
    row.received.push_back({on.type, {on.since_reset_s, on.deficit_s}});
  }
  return row;
}

}  // namespace

void AnswerForecast(const QueryRequest& request, const QueryView& view,
                    QueryReply* reply) {
  JsonPage page;
  uint64_t last = request.cursor;
  const std::map<JobId, Job>& jobs = view.engine.jobs();
  for (auto it = jobs.upper_bound(JobId(last)); it != jobs.end(); ++it) {
    const auto& [id, job] = *it;
    if (job.active() && !page.Add(ToJson(RowOf(job, view)))) {
      reply->next_cursor = last;
      break;
    }
    last = id.value();
  }
  reply->json = page.Take();
}

}  // namespace gavel
