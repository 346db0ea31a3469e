#include "tests/server/fake_peers.h"

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {

using nlohmann::json;

CoordinatorServerOptions QuietOptions(const std::string& state_directory) {
  CoordinatorServerOptions options;
  options.state_directory = state_directory;
  options.policy = "max_min_fairness";
  options.engine.round_duration_s = 600;
  options.engine.lease_duration_s = 30;
  return options;
}

RunningCoordinator::RunningCoordinator(CoordinatorServerOptions options) {
  auto server = CoordinatorServer::Create(std::move(options));
  created_ = server.status();
  if (!server.ok()) return;
  server_ = *std::move(server);
  thread_ = std::thread([this] { ended_ = server_->Run(); });
}

absl::Status RunningCoordinator::Stop() {
  if (thread_.joinable()) server_->Stop();
  return Wait();
}

absl::Status RunningCoordinator::Wait() {
  if (thread_.joinable()) thread_.join();
  server_.reset();
  return ended_;
}

FakePeer::FakePeer(const std::string& endpoint,
                   const std::optional<CurveClient>& keys) {
  auto dealer = Dealer::Connect(endpoint, {keys});
  EXPECT_OK(dealer);
  dealer_ = *std::move(dealer);
}

bool FakePeer::Send(const Message& message) {
  return Eventually([&] { return dealer_->Send(message).ok(); });
}

SubmitReply FakeClient::Submit(const std::string& toml) {
  Send(SubmitRequest{++request_, "job.toml", toml, "/jobs"});
  const auto reply = Receive<SubmitReply>();
  EXPECT_TRUE(reply.has_value() && reply->request == request_);
  return reply.value_or(SubmitReply{});
}

SubmitReply FakeClient::SubmitNamed(const std::string& name) {
  return Submit(
      StrCat("name = \"", name, "\"\ncommand = [\"./train\", \"--quick\"]\n"));
}

std::string FakeClient::WhyNotAdmitted(const std::string& toml) {
  QueryRequest query;
  query.request = ++request_;
  query.kind = QueryKind::kAdmission;
  query.submission = {0, "job.toml", toml, "/jobs"};
  Send(query);
  const auto reply = Receive<QueryReply>();
  EXPECT_TRUE(reply.has_value() && reply->request == request_);
  return reply ? reply->error : "no answer";
}

CommandReply FakeClient::Command(CommandKind kind, JobId job) {
  Send(CommandRequest{++request_, kind, job});
  const auto reply = Receive<CommandReply>();
  EXPECT_TRUE(reply.has_value() && reply->request == request_);
  return reply.value_or(CommandReply{});
}

json FakeClient::Query(QueryKind kind, JobId job) {
  Send(QueryRequest{++request_, kind, job, /*cursor=*/0});
  const auto reply = Receive<QueryReply>();
  EXPECT_TRUE(reply.has_value() && reply->request == request_);
  return reply && reply->error.empty() ? json::parse(reply->json) : json();
}

json FakeClient::WaitForRow(JobId job,
                            const std::function<bool(const json&)>& done) {
  json row;
  EXPECT_TRUE(Eventually([&] {
    const json rows = Query(QueryKind::kQueue, job);
    if (rows.size() == 1 && done(rows[0])) row = rows[0];
    return !row.is_null();
  })) << "job "
      << job.value() << " did not get there";
  return row;
}

FakeAgent::FakeAgent(const std::string& endpoint, std::string server,
                     uint64_t incarnation,
                     const std::optional<CurveClient>& keys)
    : FakePeer(endpoint, keys),
      server_(std::move(server)),
      incarnation_(incarnation) {}

std::optional<AgentWelcome> FakeAgent::Join(
    int accelerators, std::vector<RunningWorker> running) {
  AgentHello hello;
  hello.server = server_;
  hello.incarnation = incarnation_;
  hello.address = "127.0.0.1";
  hello.running = std::move(running);
  for (int i = 0; i < accelerators; ++i) {
    hello.accelerators.push_back({"v100", StrCat(server_, "-", i)});
  }
  Send(hello);
  return Receive<AgentWelcome>();
}

void FakeAgent::Exited(const WorkerKey& worker, int exit_code, int signal) {
  WorkerExited exited;
  exited.server = server_;
  exited.worker = worker;
  exited.exit_code = exit_code;
  exited.signal = signal;
  // Its session has come to its end.
  if (exit_code == 0 && signal == 0) exited.finished_code = 0;
  Send(exited);
}

bool FakeWorker::Hello() {
  for (int attempt = 0; attempt < 20; ++attempt) {
    WorkerHello hello;
    hello.worker = key_;
    hello.highest_seen = highest_seen_;
    Send(hello);
    if (const auto notice = Receive<LeaseNotice>(1)) {
      highest_seen_ = std::max(highest_seen_, notice->position);
      return true;
    }
  }
  return false;
}

std::optional<LeaseGrant> FakeWorker::AskForLease(bool holding,
                                                  uint64_t epoch) {
  for (int attempt = 0; attempt < 40; ++attempt) {
    LeaseRequest request;
    request.worker = key_;
    request.highest_seen = highest_seen_;
    request.epoch = epoch;
    request.nonce = ++nonce_;
    request.holding = holding;
    Send(request);
    const auto grant = Receive<LeaseGrant>(0.5);
    if (!grant || grant->nonce != nonce_) continue;
    highest_seen_ = std::max(highest_seen_, grant->position);
    return grant;
  }
  return std::nullopt;
}

void FakeWorker::Report(uint64_t epoch, uint64_t steps_done,
                        double steps_per_s) {
  StepReport report{key_, epoch, {}};
  report.progress.steps_done = steps_done;
  report.progress.throughput_steps_per_s = steps_per_s;
  report.progress.window_s = 1;
  report.progress.scalars = {{"loss", 0.5}};
  Send(report);
}

void FakeWorker::Release(uint64_t epoch, uint64_t steps_done) {
  LeaseReleased released{key_, epoch, {}};
  released.progress.steps_done = steps_done;
  Send(released);
}

}  // namespace gavel::testing
