// What the pages derive from the coordinator's rows. Pure.
import {isNumber, nowSeconds} from './format.js';

export const lossOf = (row) => row.scalars && isNumber(row.scalars.loss) ?
  row.scalars.loss : null;

export const progressOf = (row) => row.steps_total > 0 ?
  Math.min(1, (row.steps_done || 0) / row.steps_total) : null;

// When the job ends if it keeps its present speed and gets its target share;
// seconds since 1970. Null: its steps or its speed are not known.
export function expectedEnd(row, now = nowSeconds()) {
  if (row.ended_at_s) return row.ended_at_s;
  const left = (row.steps_total || 0) - (row.steps_done || 0);
  if (!(row.steps_total > 0) || !(row.steps_per_s > 0)) return null;
  const share = row.share_target > 0 ? Math.min(1, row.share_target) : 1;
  return now + Math.max(0, left) / row.steps_per_s / share;
}

export const typesOf = (row) => {
  const counts = new Map();
  for (const {type} of row.accelerators || []) {
    counts.set(type, (counts.get(type) || 0) + 1);
  }
  return [...counts].map(([type, n]) => n === 1 ? type : `${type} ×${n}`)
      .join(', ');
};

// Rows of one server that came apart for their length, as one again.
export function joinServers(rows) {
  const servers = new Map();
  for (const row of rows) {
    const known = servers.get(row.server);
    if (known) {
      known.accelerators.push(...(row.accelerators || []));
    } else {
      servers.set(row.server,
          {...row, accelerators: [...(row.accelerators || [])]});
    }
  }
  return [...servers.values()];
}

// The accelerators of a job over time, from its leases (`gavel history --show
// leases`): when each began, how it ended, and what the next one of the same
// worker was, a move or a return.
export function staysOf(leases) {
  const stays = leases.filter((one) => one.from_s > 0)
      .sort((a, b) => a.from_s - b.from_s || a.rank - b.rank)
      .map((one) => ({...one, place: `${one.server}/${one.uuid}`}));
  const last = new Map();  // by rank
  for (const stay of stays) {
    const before = last.get(stay.rank);
    stay.kind = 'start';
    if (before) {
      before.next = stay;
      stay.before = before;
      stay.kind = before.place === stay.place ? 'return' : 'move';
      stay.pause_s = before.to_s > 0 ? Math.max(0, stay.from_s - before.to_s) : 0;
    }
    last.set(stay.rank, stay);
  }
  return stays;
}

// Sums by user over jobs that are not over: what the policy intends for them
// and what they received, in accelerators; and what they hold now.
export function sharesByUser(jobs) {
  const users = new Map();
  for (const job of jobs) {
    const name = job.owner || job.entity || '';
    const sum = users.get(name) || {name, jobs: 0, running: 0, target: 0, got: 0,
      held: 0};
    const size = job.scale_factor || 1;
    sum.jobs += 1;
    sum.running += job.state === 'R' ? 1 : 0;
    // One that keeps its accelerators until its end has no share.
    if (!job.opaque) {
      sum.target += (job.share_target || 0) * size;
      sum.got += (job.share_got || 0) * size;
    }
    sum.held += (job.accelerators || []).length;
    users.set(name, sum);
  }
  return [...users.values()].sort((a, b) => b.target - a.target ||
      (a.name < b.name ? -1 : 1));
}
