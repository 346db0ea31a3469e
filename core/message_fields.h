// The fields of every message, in the order of the wire: docs/protocol.md in
// code. A field is appended to its struct in core/messages.h and to its list
// here; tests/core/codec_test.cc fails when one of them was forgotten.
// Included by codecs only.
#ifndef GAVEL_CORE_MESSAGE_FIELDS_H_
#define GAVEL_CORE_MESSAGE_FIELDS_H_

#include <tuple>

#include "core/messages.h"
#include "core/packer.h"

namespace gavel {

// ---- shared parts

auto Fields(As<Generation> auto& m) { return std::tie(m.epoch, m.step); }

auto Fields(As<WorkerId> auto& m) { return std::tie(m.job, m.rank); }

auto Fields(As<WorkerKey> auto& m) {
  return std::tie(m.job, m.rank, m.incarnation);
}

auto Fields(As<PositionProof> auto& m) { return std::tie(m.first, m.second); }

auto Fields(As<JournalPosition> auto& m) {
  return std::tie(m.term, m.seq, m.proof);
}

auto Fields(As<AcceleratorInfo> auto& m) {
  return std::tie(m.type, m.uuid, m.device, m.threads, m.slow_down_factor,
                  m.memory_bytes, m.context_bytes, m.exclusive, m.alone_visible,
                  m.group);
}

auto Fields(As<Progress> auto& m) {
  return std::tie(m.steps_done, m.last_generation, m.throughput_steps_per_s,
                  m.window_s, m.pauses, m.moves, m.pausing_s, m.scalars,
                  m.state_bytes, m.device_bytes, m.host_bytes, m.boundaries);
}

constexpr PauseTier LastOf(PauseTier) { return PauseTier::kKeep; }
constexpr ReleaseCause LastOf(ReleaseCause) { return ReleaseCause::kNoRoom; }

auto Fields(As<CheckpointSource> auto& m) {
  return std::tie(m.server, m.endpoint, m.public_key, m.at_least);
}

// ---- worker -> coordinator

auto Fields(As<WorkerHello> auto& m) {
  return std::tie(m.worker, m.highest_seen, m.pid, m.progress, m.ready);
}

auto Fields(As<LeaseRequest> auto& m) {
  return std::tie(m.worker, m.highest_seen, m.epoch, m.nonce, m.holding,
                  m.released_epoch, m.gang_address);
}

auto Fields(As<StepReport> auto& m) {
  return std::tie(m.worker, m.epoch, m.progress, m.highest_seen);
}

auto Fields(As<LeaseReleased> auto& m) {
  return std::tie(m.worker, m.epoch, m.progress, m.cause, m.highest_seen);
}

auto Fields(As<WorkerFinished> auto& m) {
  return std::tie(m.worker, m.epoch, m.exit_code, m.progress, m.detail,
                  m.highest_seen);
}

// ---- coordinator -> worker

auto Fields(As<LeaseGrant> auto& m) {
  return std::tie(m.worker, m.position, m.epoch, m.nonce, m.duration_s,
                  m.accelerator, m.slots, m.world_size, m.gang_address,
                  m.memory_limit_bytes, m.extension_lead_s);
}

auto Fields(As<LeaseDenied> auto& m) {
  return std::tie(m.worker, m.position, m.epoch, m.nonce, m.retry_after_s);
}

auto Fields(As<LeaseNotice> auto& m) {
  return std::tie(m.worker, m.position, m.epoch);
}

auto Fields(As<PauseRequest> auto& m) {
  return std::tie(m.worker, m.position, m.epoch, m.tier);
}

auto Fields(As<CheckpointRequest> auto& m) {
  return std::tie(m.worker, m.position);
}

auto Fields(As<WorkerRejected> auto& m) {
  return std::tie(m.worker, m.position, m.reason);
}

// ---- agent -> coordinator

auto Fields(As<RunningWorker> auto& m) {
  return std::tie(m.worker, m.pid, m.public_key);
}

auto Fields(As<AgentHello> auto& m) {
  return std::tie(m.server, m.incarnation, m.highest_seen, m.address,
                  m.accelerators, m.running, m.host_memory_bytes, m.state_id,
                  m.own_checkpoints, m.stream_endpoint, m.stream_public_key,
                  m.rack);
}

auto Fields(As<AcceleratorHealth> auto& m) {
  return std::tie(m.uuid, m.utilisation_percent, m.temperature_c,
                  m.uncorrectable_errors, m.last_xid, m.failure);
}

auto Fields(As<AgentHeartbeat> auto& m) {
  return std::tie(m.server, m.incarnation, m.highest_seen, m.health);
}

auto Fields(As<AgentLeaving> auto& m) {
  return std::tie(m.server, m.incarnation, m.highest_seen, m.gone);
}

auto Fields(As<WorkerLaunched> auto& m) {
  return std::tie(m.server, m.worker, m.pid, m.public_key);
}

auto Fields(As<WorkerExited> auto& m) {
  return std::tie(m.server, m.worker, m.exit_code, m.signal, m.launch_error,
                  m.no_failure, m.stopped, m.highest_seen, m.launch_hung,
                  m.error_line, m.finished_code);
}

// ---- coordinator -> agent

auto Fields(As<AgentWelcome> auto& m) {
  return std::tie(m.server, m.position, m.heartbeat_interval_s, m.incarnation,
                  m.state_id, m.cluster_id);
}

auto Fields(As<AgentRejected> auto& m) {
  return std::tie(m.server, m.position, m.reason, m.incarnation, m.state_id);
}

auto Fields(As<LaunchWorker> auto& m) {
  return std::tie(m.server, m.worker, m.position, m.job_name, m.argv,
                  m.working_directory, m.checkpoint_directory, m.environment,
                  m.world_size, m.accelerator, m.unix_user, m.source,
                  m.env_file, m.terminal);
}

auto Fields(As<StopWorker> auto& m) {
  return std::tie(m.server, m.worker, m.position, m.grace_s);
}

auto Fields(As<ExitAcknowledged> auto& m) {
  return std::tie(m.server, m.worker);
}

// ---- client <-> coordinator; `request` pairs reply with request

auto Fields(As<SubmitRequest> auto& m) {
  return std::tie(m.request, m.source, m.toml, m.directory);
}

auto Fields(As<SubmitReply> auto& m) {
  return std::tie(m.request, m.job, m.error);
}

constexpr CommandKind LastOf(CommandKind) { return CommandKind::kNotify; }

auto Fields(As<JobUpdate> auto& u) {
  return std::tie(u.weight, u.deadline_s, u.entity, u.types, u.scale_factor_min,
                  u.scale_factor_max, u.time_limit_s, u.after_success,
                  u.after_any);
}

auto Fields(As<CommandRequest> auto& m) {
  return std::tie(m.request, m.kind, m.job, m.target, m.within_s, m.update,
                  m.elements, m.introspection);
}

auto Fields(As<CommandReply> auto& m) { return std::tie(m.request, m.error); }

constexpr QueryKind LastOf(QueryKind) { return QueryKind::kAdmission; }

auto Fields(As<QueryRequest> auto& m) {
  return std::tie(m.request, m.kind, m.job, m.cursor, m.filter, m.submission);
}

auto Fields(As<QueryReply> auto& m) {
  return std::tie(m.request, m.json, m.next_cursor, m.error);
}

auto Fields(As<LogRequest> auto& m) {
  return std::tie(m.request, m.worker, m.offset, m.server, m.since_s,
                  m.tail_bytes);
}

auto Fields(As<LogReply> auto& m) {
  return std::tie(m.request, m.data, m.next_offset, m.ended, m.error,
                  m.incarnation, m.written_s, m.server);
}

// ---- checkpoints that move between servers

auto Fields(As<PrefetchCheckpoint> auto& m) {
  return std::tie(m.server, m.position, m.job, m.checkpoint_directory, m.source,
                  m.unix_user);
}

auto Fields(As<ServeCheckpoint> auto& m) {
  return std::tie(m.server, m.position, m.job, m.checkpoint_directory,
                  m.reader_public_key, m.unix_user);
}

auto Fields(As<FetchProgress> auto& m) {
  return std::tie(m.server, m.worker, m.highest_seen, m.source, m.bytes_done,
                  m.bytes_total, m.waits_for);
}

auto Fields(As<BytesMoved> auto& m) {
  return std::tie(m.worker, m.highest_seen, m.bytes);
}

// ---- app schedulers

auto Fields(As<BidderKey> auto& m) {
  return std::tie(m.owner, m.app, m.incarnation);
}

auto Fields(As<OwnBidRow> auto& m) { return std::tie(m.bundle, m.rho); }

auto Fields(As<OwnBid> auto& m) {
  return std::tie(m.rho, m.rho_nothing, m.rows);
}

auto Fields(As<JobPlace> auto& m) { return std::tie(m.job, m.type); }

auto Fields(As<OfferedJob> auto& m) {
  return std::tie(m.job, m.scale_factor, m.steps_done, m.steps_left,
                  m.running_on, m.steps_per_s);
}

auto Fields(As<BidderHello> auto& m) { return std::tie(m.bidder); }

auto Fields(As<BidRequest> auto& m) {
  return std::tie(m.bidder, m.auction, m.types, m.accelerators, m.round_s,
                  m.age_s, m.ideal_s, m.jobs);
}

auto Fields(As<BidReply> auto& m) {
  return std::tie(m.bidder, m.auction, m.bid);
}

auto Fields(As<DivideRequest> auto& m) {
  return std::tie(m.bidder, m.auction, m.won);
}

auto Fields(As<DivideReply> auto& m) {
  return std::tie(m.bidder, m.auction, m.places);
}

constexpr BidderNoticeKind LastOf(BidderNoticeKind) {
  return BidderNoticeKind::kRefused;
}

auto Fields(As<BidderNotice> auto& m) {
  return std::tie(m.bidder, m.kind, m.auction, m.text);
}

// ---- terminals of interactive jobs

auto Fields(As<TerminalRequest> auto& m) {
  return std::tie(m.request, m.worker, m.client, m.attach, m.offset,
                  m.input_offset, m.input, m.rows, m.columns);
}

auto Fields(As<TerminalReply> auto& m) {
  return std::tie(m.request, m.worker, m.offset, m.output, m.input_taken,
                  m.ended, m.error, m.refused);
}

auto Fields(As<TerminalActive> auto& m) {
  return std::tie(m.server, m.worker, m.highest_seen);
}

auto Fields(As<TerminalNotice> auto& m) {
  return std::tie(m.server, m.worker, m.position, m.text);
}

// ---- optimisers

auto Fields(As<AppGoal> auto& m) {
  return std::tie(m.app, m.ended, m.steps_to_come, m.longest_to_come,
                  m.steps_total, m.longest_total, m.stop_at);
}

auto Fields(As<AppGoalRequest> auto& m) { return std::tie(m.request, m.goal); }

}  // namespace gavel

#endif  // GAVEL_CORE_MESSAGE_FIELDS_H_
