#include "bench/coordinator_process.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>
#include <variant>

#include "bench/program.h"
#include "core/text.h"

namespace gavel::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kUnansweredMax = 200;  // submissions at once

}  // namespace

CoordinatorProcess::CoordinatorProcess(const std::string& folder,
                                       const std::string& scheduling,
                                       std::vector<std::string> arguments)
    : folder_(folder), arguments_(std::move(arguments)) {
  std::ofstream(folder_ + "/cluster.toml") << "[scheduling]\n" << scheduling;
}

double CoordinatorProcess::Start() {
  const std::string bin = fs::read_symlink("/proc/self/exe").parent_path();
  const Clock::time_point start = Clock::now();
  std::vector<std::string> argv = {bin + "/gavel", "coordinator",
                                   "--listen",     endpoint_,
                                   "--state",      folder_ + "/state",
                                   "--cluster",    folder_ + "/cluster.toml"};
  for (const char* quota : {"jobs", "accelerators", "submissions"}) {
    argv.insert(argv.end(), {StrCat("--quota-", quota), "0"});
  }
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  process_.emplace(argv, StrCat(folder_, "/out.", ++starts_));
  constexpr std::string_view kMark = "listening on ";
  while (process_->output().find('\n') == std::string::npos) {
    Demand(SecondsSince(start) < kPatience_s && !process_->Wait(0),
           "the coordinator starts: " + process_->errors());
    usleep(1000);
  }
  const double took_s = SecondsSince(start);
  const std::string line = process_->output();
  endpoint_ = line.substr(line.find(kMark) + kMark.size());
  endpoint_.resize(endpoint_.find_first_of(",\n"));
  return took_s;
}

void CoordinatorProcess::Kill() {
  process_->Signal(SIGKILL);
  process_->Wait();
}

std::string CoordinatorProcess::errors() const {
  constexpr size_t kShown = 2000;
  const std::string all = process_->errors();
  return all.substr(all.size() - std::min(kShown, all.size()));
}

std::unique_ptr<Dealer> ConnectClient(const std::string& endpoint,
                                      const DealerOptions& options) {
  auto client = Dealer::Connect(endpoint, options);
  Demand(client.ok() && (*client)->WaitUntilConnected(kPatience_s),
         "a client connects");
  return *std::move(client);
}

namespace {

// The next answer of this kind.
template <class Reply>
Reply ReceiveReply(Dealer& client, std::string_view to_what) {
  while (true) {
    auto message = client.Receive(kPatience_s);
    Demand(message.ok() && message->has_value(),
           StrCat(to_what, " is answered"));
    if (auto* reply = std::get_if<Reply>(&**message)) {
      Demand(reply->error.empty(), reply->error);
      return std::move(*reply);
    }
  }
}

}  // namespace

void SubmitJobs(Dealer& client, int jobs,
                const std::function<std::string(int)>& toml) {
  int sent = 0;
  for (int answered = 0; answered < jobs; ++answered) {
    while (sent < jobs && sent - answered < kUnansweredMax) {
      const std::string file = toml(sent++);
      const SubmitRequest request{static_cast<uint64_t>(sent), "job.toml", file,
                                  "/jobs"};
      Demand(client.Send(request).ok(), "a submission leaves");
    }
    ReceiveReply<SubmitReply>(client, "a submission");
  }
}

nlohmann::json Query(Dealer& client, QueryKind kind) {
  QueryRequest request;
  request.kind = kind;
  Demand(client.Send(request).ok(), "a query leaves");
  auto json =
      nlohmann::json::parse(ReceiveReply<QueryReply>(client, "a query").json,
                            nullptr, /*allow_exceptions=*/false);
  Demand(!json.is_discarded(), "a query's answer is JSON");
  return json;
}

void Command(Dealer& client, const CommandRequest& command) {
  Demand(client.Send(command).ok(), "a command leaves");
  ReceiveReply<CommandReply>(client, "a command");
}

}  // namespace gavel::bench
