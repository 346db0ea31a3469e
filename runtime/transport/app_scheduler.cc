#include "gavel/app_scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/curve.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {
namespace {

constexpr char kDefaultCoordinator[] = "127.0.0.1:7077";
constexpr double kHelloInterval_s = 2;
constexpr double kStopInterval_s = 0.1;
constexpr double kSilenceMax_s = 10;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Higher than that of a process that was started before.
uint64_t NewIncarnation() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count());
}

std::string OfEnvironment(const std::string& given, const char* variable,
                          const char* otherwise) {
  if (!given.empty()) return given;
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : value;
}

absl::StatusOr<std::optional<CurveClient>> KeysOf(
    const AppSchedulerOptions& options) {
  if (options.key_file.empty() && options.coordinator_key.empty()) {
    return CurveClientOfEnvironment();
  }
  if (options.key_file.empty() || options.coordinator_key.empty()) {
    return absl::InvalidArgumentError(
        "only one of key_file and coordinator_key is set; set both");
  }
  CurveClient keys;
  GAVEL_ASSIGN_OR_RETURN(keys.own, ReadKeyFile(options.key_file));
  GAVEL_ASSIGN_OR_RETURN(keys.server_public_key,
                         ReadPublicKey(options.coordinator_key));
  return keys;
}

Status OfAbsl(const absl::Status& status) {
  if (status.ok()) return {};
  const StatusCode code = absl::IsNotFound(status) ? StatusCode::kNotFound
                          : absl::IsUnavailable(status)
                              ? StatusCode::kUnavailable
                              : StatusCode::kInvalidArgument;
  return {code, std::string(status.message())};
}

// One connection, and the auction that it knows.
class Server {
 public:
  Server(AppScheduler& scheduler, const AppSchedulerOptions& options,
         std::string coordinator, std::string public_key,
         std::unique_ptr<Dealer> dealer)
      : scheduler_(scheduler),
        options_(options),
        coordinator_(std::move(coordinator)),
        public_key_(std::move(public_key)),
        dealer_(std::move(dealer)),
        bidder_{options.owner, options.app, NewIncarnation()} {}

  Status Run() {
    while (options_.stop == nullptr || !options_.stop->load()) {
      Greet();
      if (dealer_->link().refused()) {
        return {StatusCode::kUnavailable,
                LinkText(dealer_->link(), coordinator_, public_key_)};
      }
      const auto received = dealer_->Receive(kStopInterval_s);
      if (!received.ok()) {
        return {StatusCode::kUnavailable,
                std::string(received.status().message())};
      }
      if (!received->has_value()) continue;
      if (std::optional<Status> end = Take(**received)) return *end;
    }
    return {};
  }

 private:
  void Greet() {
    const double now = Seconds();
    if (!silent_ && now >= heard_at_ + kSilenceMax_s) {
      silent_ = true;
      Notice(StrCat("coordinator ", coordinator_,
                    " does not answer; trying again until it does"));
    }
    if (now < hello_at_) return;
    // A message that is lost is repeated soon: at first there is no connection.
    const bool sent = dealer_->Send(BidderHello{bidder_}).ok();
    hello_at_ = now + (sent ? kHelloInterval_s : kStopInterval_s);
  }

  void Notice(const std::string& line) const {
    try {
      if (options_.on_notice) options_.on_notice(line);
    } catch (...) {  // a line that can't be shown ends nothing
    }
  }

  // A result ends Run.
  std::optional<Status> Take(const Message& message) {
    heard_at_ = Seconds();
    if (std::exchange(silent_, false)) {
      Notice(StrCat("coordinator ", coordinator_, " answers again"));
    }
    try {
      if (const auto* notice = std::get_if<BidderNotice>(&message)) {
        return Take(*notice);
      }
      if (const auto* request = std::get_if<BidRequest>(&message)) {
        Bid(*request);
      } else if (const auto* won = std::get_if<DivideRequest>(&message)) {
        Divide(*won);
      }
    } catch (const std::exception& error) {
      return Status(StatusCode::kInternal,
                    StrCat("the scheduler of app ", options_.app,
                           " threw: ", error.what()));
    } catch (...) {
      return Status(StatusCode::kInternal,
                    StrCat("the scheduler of app ", options_.app, " threw"));
    }
    return std::nullopt;
  }

  std::optional<Status> Take(const BidderNotice& notice) {
    if (notice.bidder.incarnation != bidder_.incarnation) return std::nullopt;
    switch (notice.kind) {
      case BidderNoticeKind::kAccepted:
        accepted_ = true;
        break;
      case BidderNoticeKind::kDefault:
        Notice(StrCat("the coordinator acts for app ", options_.app,
                      " in this auction, because ", notice.text));
        break;
      case BidderNoticeKind::kNoApp:
        if (accepted_) return Status();
        return Status(StatusCode::kNotFound, notice.text);
      case BidderNoticeKind::kRefused:
        return Status(StatusCode::kFailedPrecondition, notice.text);
    }
    return std::nullopt;
  }

  void Bid(const BidRequest& request) {
    auction_ = request.auction;
    offer_ = {};
    offer_.types = request.types;
    offer_.accelerators = request.accelerators;
    offer_.round_s = request.round_s;
    offer_.age_s = request.age_s;
    offer_.ideal_s = request.ideal_s;
    for (const OfferedJob& job : request.jobs) {
      offer_.jobs.push_back({job.job.value(), job.scale_factor, job.steps_done,
                             job.steps_left, job.running_on, job.steps_per_s});
    }
    BidReply reply{bidder_, auction_, {}};
    reply.bid.rho = scheduler_.Rho(offer_);
    const AppScheduler::RhoTable table = scheduler_.Bid(offer_);
    reply.bid.rho_nothing = table.rho_nothing;
    for (const AppScheduler::Row& row : table.rows) {
      OwnBidRow& sent = reply.bid.rows.emplace_back();
      sent.rho = row.rho;
      for (size_t type = 0; type < row.accelerators.size(); ++type) {
        if (row.accelerators[type] == 0) continue;
        sent.bundle.emplace_back(static_cast<int>(type),
                                 row.accelerators[type]);
      }
    }
    Send(reply);
  }

  void Divide(const DivideRequest& request) {
    DivideReply reply{bidder_, request.auction, {}};
    // An offer that was made before this process was there is not known.
    const bool known = request.auction == auction_;
    for (const AppScheduler::Place& place :
         known ? scheduler_.Divide(offer_, request.won)
               : std::vector<AppScheduler::Place>()) {
      reply.places.push_back({JobId(place.job), place.type});
    }
    Send(reply);
  }

  void Send(const Message& message) {
    const absl::Status sent = dealer_->Send(message);
    if (!sent.ok()) {
      Notice(StrCat("an answer of app ", options_.app,
                    " was not sent: ", sent.message()));
    }
  }

  AppScheduler& scheduler_;
  const AppSchedulerOptions& options_;
  const std::string coordinator_;
  const std::string public_key_;  // empty: no keys
  const std::unique_ptr<Dealer> dealer_;
  const BidderKey bidder_;
  double hello_at_ = 0;
  double heard_at_ = Seconds();
  bool silent_ = false;
  bool accepted_ = false;
  uint64_t auction_ = 0;
  AppScheduler::Offer offer_;  // of auction_
};

absl::StatusOr<std::unique_ptr<Server>> Connect(
    AppScheduler& scheduler, const AppSchedulerOptions& options) {
  if (options.app.empty()) {
    return absl::InvalidArgumentError(
        "AppSchedulerOptions::app is empty; set it to the app of the job "
        "files");
  }
  const std::string coordinator = OfEnvironment(
      options.coordinator, "GAVEL_COORDINATOR", kDefaultCoordinator);
  GAVEL_RETURN_IF_ERROR(CheckResolves(coordinator));
  GAVEL_ASSIGN_OR_RETURN(std::optional<CurveClient> keys, KeysOf(options));
  const std::string public_key = keys ? keys->own.public_key : "";
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Dealer> dealer,
                         Dealer::Connect(coordinator, {std::move(keys)}));
  return std::make_unique<Server>(scheduler, options, coordinator, public_key,
                                  std::move(dealer));
}

}  // namespace

Status RunAppScheduler(AppScheduler& scheduler,
                       const AppSchedulerOptions& options) {
  const auto server = Connect(scheduler, options);
  return server.ok() ? (*server)->Run() : OfAbsl(server.status());
}

}  // namespace gavel
