#include "iterator/gang_thread.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/signals_blocked.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTalkInterval(20);
constexpr milliseconds kGiveUpInterval(50);
// For the last word, and for rank 0 until the others have said theirs: a rank
// that is lost meanwhile is known to be by then.
constexpr milliseconds kEndWait(2000);
constexpr milliseconds kEndWaitOfHost(8000);

std::string MemberKey(const std::string& prefix, int rank) {
  return StrCat(prefix, "/member/", rank);
}
std::string LeaderKey(const std::string& prefix) {
  return StrCat(prefix, "/leader");
}

}  // namespace

struct GangThread::Shared {
  Shared(Options given, Time now)
      : options(std::move(given)), member(options.steps_done, now) {}

  void Run(std::shared_ptr<GangStore> host, std::unique_ptr<GangStore> store);
  // Rank 0 when `leader`. An error: the store can't be reached.
  absl::Status Talk(GangStore& store, StopLeader* leader);
  absl::StatusOr<LeaderWord> Lead(GangStore& store, StopLeader& leader);
  absl::StatusOr<LeaderWord> Follow(GangStore& store) const;
  void Break(const std::string& why);
  void EndStuckWait();

  const Options options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  StopMember member;
  Leaving leaving = Leaving::kNo;
  bool in_step = false;
  bool waiting = false;  // for the device
  bool broken = false;
  std::string why;
  uint64_t talks = 0;  // rounds of words so far
  bool ended = false;
};

absl::Status GangThread::Announce(GangStore& store, const Options& options) {
  if (options.rank == 0) {
    GAVEL_RETURN_IF_ERROR(
        store.Set(LeaderKey(options.prefix), EncodeWord(LeaderWord())));
  }
  MemberWord word;
  word.step_begun = options.steps_done;
  return store.Set(MemberKey(options.prefix, options.rank), EncodeWord(word));
}

absl::StatusOr<std::unique_ptr<GangThread>> GangThread::Start(
    std::shared_ptr<GangStore> store, Options options) {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<GangStore> own, store->Clone());
  auto shared = std::make_shared<Shared>(std::move(options), Now());
  const SignalsBlocked blocked;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("the gang's thread", [&] {
    std::thread([shared, host = std::move(store),
                 own = std::move(own)]() mutable {
      shared->Run(std::move(host), std::move(own));
    }).detach();
    return absl::OkStatus();
  }));
  return std::unique_ptr<GangThread>(new GangThread(std::move(shared)));
}

GangThread::GangThread(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)) {}

GangThread::~GangThread() {
  Leave(Leaving::kBroken);  // unless it has left in another way
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->changed.wait_for(
      lock, shared_->options.rank == 0 ? kEndWaitOfHost : kEndWait,
      [this] { return shared_->ended; });
}

StopMember::Passage GangThread::Pass(uint64_t steps_done, bool begins,
                                     const std::function<bool()>& gives_up) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->in_step = false;
  while (!shared_->broken) {
    const StopMember::Passage passage =
        shared_->member.Pass(steps_done, begins);
    if (passage == StopMember::Passage::kMissed) {
      shared_->broken = true;
      shared_->why = "a step was counted without a boundary behind it";
    }
    shared_->in_step = begins && passage == StopMember::Passage::kGoOn;
    if (passage != StopMember::Passage::kWait) return passage;
    shared_->changed.wait_for(lock, kGiveUpInterval);
    if (!gives_up()) continue;
    shared_->broken = true;
    shared_->why = "the lease ended before all ranks agreed on a step";
  }
  return StopMember::Passage::kMissed;
}

void GangThread::Want(StopKind kind) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->member.Want(kind);
}

void GangThread::SetWaiting(bool waiting) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->waiting = waiting;
}

void GangThread::Rest() {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->in_step = false;
}

void GangThread::End() {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->in_step = false;
  shared_->member.End();
}

bool GangThread::is_left_behind() const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->member.is_left_behind(Now());
}

void GangThread::BeginSave(const Save& save) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->member.BeginSave(save);
}

bool GangThread::all_have_begun(const Save& save) const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->member.all_have_begun(save);
}

void GangThread::FailSave(const Save& save) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->member.FailSave(save);
}

int GangThread::failed_rank(const Save& save) const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->member.failed_rank(save);
}

void GangThread::Listen() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  // The first may have been under way.
  const uint64_t enough = shared_->talks + 2;
  shared_->changed.wait_for(lock, kEndWait, [&] {
    return shared_->talks >= enough || shared_->broken || shared_->ended;
  });
}

void GangThread::Leave(Leaving how) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->leaving != Leaving::kNo) return;
  shared_->leaving = how;
  shared_->in_step = false;
  shared_->member.Leave(how);
  shared_->changed.notify_all();
}

bool GangThread::broken() const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->broken;
}

std::string GangThread::why() const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->why;
}

// ---- the thread

void GangThread::Shared::Run(std::shared_ptr<GangStore> host,
                             std::unique_ptr<GangStore> store) {
  std::optional<StopLeader> leader;
  if (options.rank == 0) leader.emplace(options.world_size, Now());
  bool last = false;
  while (!last) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait_for(lock, kTalkInterval);
      // What is said from here on is the last word.
      last = leaving != Leaving::kNo;
    }
    const absl::Status status = Talk(*store, leader ? &*leader : nullptr);
    if (!status.ok()) {
      Break(StrCat("the store at ", store->endpoint(),
                   " is gone: ", status.message()));
      break;
    }
    if (leader && !leader->all_left()) last = false;
  }
  store.reset();
  host.reset();
  std::lock_guard<std::mutex> lock(mutex);
  ended = true;
  changed.notify_all();
}

absl::Status GangThread::Shared::Talk(GangStore& store, StopLeader* leader) {
  MemberWord word;
  {
    std::lock_guard<std::mutex> lock(mutex);
    word = member.Word();
  }
  GAVEL_RETURN_IF_ERROR(
      store.Set(MemberKey(options.prefix, options.rank), EncodeWord(word)));
  GAVEL_ASSIGN_OR_RETURN(const LeaderWord heard,
                         leader ? Lead(store, *leader) : Follow(store));
  int lost = -1;
  {
    std::lock_guard<std::mutex> lock(mutex);
    member.Hear(Now(), heard);
    if (leaving == Leaving::kNo) lost = member.lost_rank(Now());
    if (lost < 0) ++talks;  // else Break() says so
    changed.notify_all();
  }
  if (lost >= 0) {
    Break(StrCat("rank ", lost, " of ", options.world_size,
                 " is gone or does not answer"));
  }
  EndStuckWait();
  return absl::OkStatus();
}

absl::StatusOr<LeaderWord> GangThread::Shared::Lead(GangStore& store,
                                                    StopLeader& leader) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.world_size; ++rank) {
    keys.push_back(MemberKey(options.prefix, rank));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> texts, store.Get(keys));
  std::vector<std::optional<MemberWord>> words;
  for (const std::string& text : texts) words.push_back(DecodeMemberWord(text));
  words.resize(static_cast<size_t>(options.world_size));
  const LeaderWord word = leader.Hear(Now(), words);
  GAVEL_RETURN_IF_ERROR(store.Set(LeaderKey(options.prefix), EncodeWord(word)));
  return word;
}

absl::StatusOr<LeaderWord> GangThread::Shared::Follow(GangStore& store) const {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         store.Get({LeaderKey(options.prefix)}));
  if (texts.empty()) return LeaderWord();
  return DecodeLeaderWord(texts.front()).value_or(LeaderWord());
}

void GangThread::Shared::Break(const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (broken || leaving != Leaving::kNo) return;
    broken = true;
    why = reason;
    changed.notify_all();
  }
  if (options.abort) options.abort();
}

// What waits for that which can't come, or must not any more.
void GangThread::Shared::EndStuckWait() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    // Or who answers below may be gone.
    if (leaving != Leaving::kNo || (!in_step && !waiting)) return;
    const bool is_over = options.lease_is_over && options.lease_is_over();
    if (!is_over && !member.is_left_behind(Now())) return;
  }
  if (options.abort) options.abort();
}

}  // namespace gavel::internal
