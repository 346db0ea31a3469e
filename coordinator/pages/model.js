// What the pages derive from the coordinator's rows. Pure.
import {count, isNumber, nowSeconds} from './format.js';
import {JOB_STATES, jobState} from './states.js';

export const lossOf = (row) => row.scalars && isNumber(row.scalars.loss) ?
  row.scalars.loss : null;

export const progressOf = (row) => row.steps_total > 0 ?
  Math.min(1, (row.steps_done || 0) / row.steps_total) : null;

// When the job ends if it keeps its present speed and gets its target share;
// seconds since 1970. Null: its steps or its speed are not known.
export function expectedEnd(row, now = nowSeconds()) {
  if (row.elements) return null;
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

// "7-99", "1,3,7-99", "1,3,5,9, ...": of ascending indices.
const RANGES_MAX = 4;
function indicesText(indices) {
  const ranges = [];
  for (const index of indices) {
    const last = ranges[ranges.length - 1];
    if (last && index === last[1] + 1) last[1] = index;
    else ranges.push([index, index]);
  }
  const texts = ranges.slice(0, RANGES_MAX).map(([from, to]) =>
    from === to ? String(from) : `${from}-${to}`);
  return texts.join(',') + (ranges.length > RANGES_MAX ? ', ...' : '');
}

// Running elements first.
const STATES = Object.keys(JOB_STATES);

// "93 elements: 3 running, 90 waiting".
function countsText(elements) {
  const states = new Map();
  for (const {state} of elements) states.set(state, (states.get(state) || 0) + 1);
  const parts = [...states].sort(([a], [b]) => STATES.indexOf(a) - STATES.indexOf(b))
      .map(([state, n]) => `${count(n)} ${jobState(state).word}`);
  return `${count(elements.length)} elements: ${parts.join(', ')}`;
}

// One row for elements of an array, with the keys of a job's row and `elements`.
function foldedRow(elements) {
  const [first] = elements;
  const sum = (key) => elements.reduce((total, row) => total + (row[key] || 0), 0);
  const indices = elements.map((row) => row.array_index).sort((a, b) => a - b);
  const hasTotals = elements.every((row) => row.steps_total > 0);
  return {elements, id: first.array, owner: first.owner, app: first.app,
    name: `${first.array_name || first.name}_[${indicesText(indices)}]`,
    state: STATES.find((state) => elements.some((row) => row.state === state)) ||
      first.state,
    accelerators: elements.flatMap((row) => row.accelerators || []),
    steps_done: sum('steps_done'), steps_total: hasTotals ? sum('steps_total') : 0,
    age_s: first.age_s, submitted_at_s: first.submitted_at_s,
    reason: countsText(elements)};
}

// The rows, with two or more elements of an array as one row. An element whose
// id or name is one of `words` stays by itself.
export function foldArrays(rows, words = []) {
  const named = new Set(words);
  const isNamed = (row) => named.has(String(row.id)) ||
    named.has(String(row.name).toLowerCase()) ||
    named.has(`${row.array}_${row.array_index}`);
  const arrays = new Map();
  const shown = [];
  for (const row of rows) {
    if (!row.array || (named.size > 0 && isNamed(row))) {
      shown.push(row);
    } else if (arrays.has(row.array)) {
      arrays.get(row.array).push(row);
    } else {
      arrays.set(row.array, [row]);
    }
  }
  for (const elements of arrays.values()) {
    shown.push(elements.length > 1 ? foldedRow(elements) : elements[0]);
  }
  return shown;
}

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

// Sums by name over jobs that are not over: what the policy intends for them and
// what they received, in accelerators; what they hold now; and the greatest rho.
function sharesBy(jobs, nameOf) {
  const names = new Map();
  for (const job of jobs) {
    const name = nameOf(job);
    const sum = names.get(name) || {name, jobs: 0, running: 0, target: 0, got: 0,
      held: 0, rho: null};
    const size = job.scale_factor || 1;
    sum.jobs += 1;
    sum.running += job.state === 'R' ? 1 : 0;
    // One that keeps its accelerators until its end has no share.
    if (!job.opaque) {
      sum.target += (job.share_target || 0) * size;
      sum.got += (job.share_got || 0) * size;
    }
    sum.held += (job.accelerators || []).length;
    if (isNumber(job.rho)) sum.rho = Math.max(job.rho, sum.rho ?? job.rho);
    names.set(name, sum);
  }
  return [...names.values()].sort((a, b) => b.target - a.target ||
      (a.name < b.name ? -1 : 1));
}

export const sharesByUser = (jobs) =>
  sharesBy(jobs, (job) => job.owner || job.entity || '');

// Users may have apps of the same name.
export const appName = (app, owner) => owner ? `${app} of ${owner}` : app;
export const sharesByApp = (jobs) => sharesBy(jobs.filter((job) => job.app),
    (job) => appName(job.app, job.owner));
