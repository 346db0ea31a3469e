#include "coordinator/server/query/forecast_query.h"

#include <algorithm>
#include <limits>

#include "coordinator/server/query/json_page.h"

namespace gavel {
namespace {

using Json = nlohmann::ordered_json;

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

Json ForecastRow(const Job& job, const QueryView& view) {
  Json steps_left;
  if (job.spec.steps_total > 0) {
    steps_left = std::max(1.0, static_cast<double>(job.spec.steps_total) -
                                   StepsDone(job, view.now));
  }
  const event::Received received = view.engine.ReceivedOf(job.id, view.now);
  Json on_types = Json::object();
  for (const event::Received::OnType& on : received.types) {
    on_types[on.type] = {{"since_reset_s", on.since_reset_s},
                         {"deficit_s", on.deficit_s}};
  }
  Json throughputs = Json::object();
  for (const std::string& type : view.engine.cluster().types()) {
    throughputs[type] = view.engine.throughputs().Get(job.id, type).steps_per_s;
  }
  return {
      {"id", job.id.value()},
      {"name", job.spec.name},
      {"app", job.spec.app},
      {"entity", job.spec.entity},
      {"owner", job.spec.owner},
      {"weight", job.spec.weight},
      {"owner_weight", job.spec.owner_weight},
      {"deadline_s",
       job.spec.deadline_s.has_value() ? Json(*job.spec.deadline_s) : Json()},
      {"scale_factor", job.scale_factor},
      {"steps_left", std::move(steps_left)},
      {"age_s", view.now - job.submitted_at},
      {"throughputs", std::move(throughputs)},
      {"received_s", received.total_s},
      {"received", std::move(on_types)}};
}

}  // namespace

void AnswerForecast(const QueryRequest& request, const QueryView& view,
                    QueryReply* reply) {
  JsonPage page;
  reply->next_cursor =
      page.AddFrom(view.engine.jobs(), request.cursor, [&](const Job& job) {
        return job.active() ? ForecastRow(job, view) : Json();
      });
  reply->json = page.Take();
}

}  // namespace gavel
