// One job: why it is in its state, its rounds on accelerators, its speed and
// loss, its checkpoints and output, and what may be done to it.
import {el, facts, panel, plainTable, redraw, scroller} from './dom.js';
import {Poll, get} from './api.js';
import {actionButton, confirmAction} from './actions.js';
import {Gantt, LineChart, Series, POINTS_MAX} from './charts.js';
import {DASH, bytes, count, dateTime, duration, fixed, isNumber, orDash,
  plural, relative, short} from './format.js';
import {expectedEnd, lossOf, progressOf, staysOf, typesOf} from './model.js';
import {JOB_STATES, isOver, jobBadge} from './states.js';
import {partBar, shareBar} from './bars.js';
import {sourceKey, sourceLegend} from './sources.js';

const LOG_LINES = 200;
const LANES_MAX = 64;
const STAYS_MAX = 500;
// The output and the loss change with each step; they are read this rarely.
const LOG_PAUSE_S = 3;
const LOG_RETRY_S = 30;
const TONES = 6;

const ACTIONS = {
  hold: (state) => ['PD', 'R', 'S', 'CG'].includes(state),
  release: (state) => state === 'F',
  requeue: (state) => ['R', 'S', 'CG'].includes(state),
  cancel: (state) => !isOver(state),
};

// ---- The stays on accelerators

const KINDS = {start: 'began', return: 'returned'};

// Why a stay ended and, for a move, why it began there. A coordinator of an
// earlier version has recorded no reasons.
const whyEnded = (stay) => stay.why_ended || orDash(stay.ended);
const whyMoved = (stay) => stay.why_moved || `moved from ${stay.before.place}`;

function stayTitle(stay, now) {
  const end = stay.to_s > 0 ? stay.to_s : now;
  return [`${stay.place}, ${stay.type}, rank ${stay.rank}`,
    `${dateTime(stay.from_s)} to ${stay.to_s > 0 ? dateTime(stay.to_s) : 'now'} (${
      duration(end - stay.from_s)})`,
    ...(stay.kind === 'move' ? [whyMoved(stay)] : []),
    stay.to_s > 0 ? stay.why_ended || `ended: ${orDash(stay.ended)}` : 'runs']
      .join('\n');
}

function showStays(gantt, leases, now) {
  const stays = staysOf(leases).slice(-STAYS_MAX);
  const types = [...new Set(stays.map((stay) => stay.type))].sort();
  const letters = lettersOf(types);
  const tone = (type) => `t${types.indexOf(type) % TONES}`;
  const places = [...new Set(stays.map((stay) => stay.place))].slice(-LANES_MAX);
  const lanes = places.map((place) => ({name: place, bars: stays
      .filter((stay) => stay.place === place)
      .map((stay) => ({from_s: stay.from_s, to_s: stay.to_s > 0 ? stay.to_s : now,
        open: !(stay.to_s > 0), tone: tone(stay.type),
        letter: letters.get(stay.type), title: stayTitle(stay, now)}))}));
  const moves = stays.filter((stay) => stay.kind === 'move').map((stay) => ({
    at_s: stay.from_s, from: places.indexOf(stay.before.place),
    to: places.indexOf(stay.place), title: whyMoved(stay)}))
      .filter((move) => move.from >= 0 && move.to >= 0);
  const pauses = stays.filter((stay) => stay.pause_s > 0 &&
    places.includes(stay.before.place)).map((stay) => ({
    lane: places.indexOf(stay.before.place), from_s: stay.before.to_s,
    to_s: stay.from_s, title: `without an accelerator for ${
      duration(stay.pause_s)}: ${whyEnded(stay.before)}`}));
  const begin = Math.min(now - 1, ...stays.map((stay) => stay.from_s));
  const last = stays.some((stay) => !(stay.to_s > 0)) ? now :
    Math.max(begin + 1, ...stays.map((stay) => stay.to_s));
  gantt.show({lanes, moves, pauses, from_s: begin, to_s: last,
    legend: types.map((type) => ({name: type, tone: tone(type),
      letter: letters.get(type)})),
    table: () => plainTable('Rounds, pauses and moves', [{label: 'From'},
          {label: 'How', long: true}, {label: 'Rank', number: true},
          {label: 'Accelerator'}, {label: 'Type'}, {label: 'Held for', number: true},
          {label: 'Steps', number: true}, {label: 'Ended because', long: true},
          {label: 'Pause before', number: true}],
        [...stays].reverse().map((stay) => [dateTime(stay.from_s),
          stay.kind === 'move' ? whyMoved(stay) : KINDS[stay.kind],
          String(stay.rank), stay.place, orDash(stay.type),
          duration((stay.to_s > 0 ? stay.to_s : now) - stay.from_s),
          stay.steps_to > stay.steps_from ? count(stay.steps_to -
            stay.steps_from) : DASH,
          stay.to_s > 0 ? whyEnded(stay) : 'runs now',
          isNumber(stay.pause_s) ? duration(stay.pause_s) : DASH]))});
  return stays;
}

// A letter for each type, its first that no other has.
function lettersOf(types) {
  const letters = new Map();
  for (const type of types) {
    const free = [...type.toUpperCase(), ...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'].find(
        (letter) => /[A-Z]/.test(letter) && ![...letters.values()].includes(letter));
    letters.set(type, free || '?');
  }
  return letters;
}

// ---- Documents, which may lack parts

const listOf = (value) => Array.isArray(value) ? value : [];

function partsOf(document) {
  return {job: document.job || pastJob(document.history || {}),
    why: document.why || {}, leases: listOf(document.leases),
    steps: listOf(document.steps), generations: listOf(document.checkpoints)};
}

// A job that only the history knows, with the keys of one that is present.
const pastJob = (row) => ({...row, owner: row.user, submitted_at_s: row.submitted_s,
  ended_at_s: row.ended_s || null, received_s: row.run_s,
  exit: row.failures > 0 ? {exit_code: row.exit_code,
    signal: row.signal || null} : null});

const lossPoints = (document) => listOf(Array.isArray(document) ? document :
  document && document.points).map((point) => ({
  x: point.steps_done, y: point.loss})).filter(
    (point) => isNumber(point.x) && isNumber(point.y));

const textOf = (document) => typeof document === 'string' ? document :
  document && typeof document.text === 'string' ? document.text : '';

// ---- The page

// "finished"; "waiting, is to finish".
function parentState({state, is_awaited: isAwaited, must_finish: mustFinish}) {
  const word = (JOB_STATES[state] || {word: state || ''}).word;
  if (isOver(state)) return word;
  if (isAwaited) {
    return `${word && `${word}, `}${mustFinish ? 'is to finish' : 'is to end'}`;
  }
  return word ? `${word}, no longer waited for` : 'has ended';
}

// A job or an array that this one waits for or has waited for.
function parentLink(parent) {
  const name = parent.name || (parent.is_array ? 'array' : '');
  const href = parent.is_array ? `#/jobs?array=${parent.job}` : parent.job > 0 ?
    `#/job/${parent.job}` : `#/jobs?q=${encodeURIComponent(parent.name)}`;
  return el('span', {class: 'parent'}, el('a', {href}, [parent.job || '', name]
      .filter(Boolean).join(' ')), ` (${parentState(parent)})`);
}

// What the job has to do with other jobs; nothing for most.
function related(job, why) {
  const parents = listOf(why.parents);
  const {array, array_name: name, array_index: index} = job;
  return [
    ...(array > 0 ? [['array', el('a', {href: `#/jobs?array=${array}`},
        `${array} ${orDash(name)}, element ${orDash(index)}`)]] : []),
    ...(parents.length > 0 ? [['parents', parents.map(parentLink),
      'Jobs and arrays whose end it waits for, or has waited for']] : []),
  ];
}

function summary(job, why) {
  const end = expectedEnd(job);
  const progress = progressOf(job);
  return facts([
    ['user', orDash(job.owner)], ['app', orDash(job.app)],
    ['entity', orDash(job.entity)], ...related(job, why),
    ['submitted', relative(job.submitted_at_s)],
    job.ended_at_s ? ['ended', relative(job.ended_at_s)] :
      ['expected end', relative(end), 'At its present speed and its target share'],
    ['accelerators', typesOf(job) || DASH, (job.accelerators || []).map((a) =>
      `${a.server}/${a.uuid}`).join('\n')],
    ['workers', job.scale_factor_min === job.scale_factor_max ?
      count(job.scale_factor) : `${count(job.scale_factor)} of ${
        job.scale_factor_min} to ${job.scale_factor_max}`],
    ['target / got', job.opaque ? DASH : shareBar(job.share_target, job.share_got),
      job.opaque ? 'It keeps its accelerators until its end: it has no share' :
        'Share of time that the policy intends, and the one received'],
    ['progress', progress === null ? `${count(job.steps_done)} steps` :
      partBar(progress, `${count(job.steps_done)} of ${count(job.steps_total)} steps`)],
    ['speed', job.steps_per_s > 0 ? `${short(job.steps_per_s)} steps/s` : DASH],
    ['loss', lossOf(job) === null ? DASH : short(lossOf(job))],
    ['received', duration(job.received_s), 'Time with accelerators'],
    ['pauses / moves', `${count(job.pauses)} / ${count(job.moves)}`],
    ['lost to pausing', duration(job.pausing_s)],
    ['weight', isNumber(job.weight) ? String(job.weight) : DASH],
    ['rho of its app', fixed(isNumber(job.rho) ? job.rho : why.rho),
      'Time to finish over that with an equal part of the cluster'],
    ['place in line', isNumber(why.place) ? count(why.place) : DASH],
    ['last auction', orDash(why.auction)],
  ]);
}

// The last generations that workers reported, the newest first.
function generations(rows) {
  return plainTable('Checkpoints, newest first', [{label: 'Step', number: true},
    {label: 'Epoch', number: true, title: 'Of the lease under which it was written'},
    {label: 'When'}, {label: 'State', number: true, title:
      'Tensors of the worker that reported it'}, {label: 'Server'}],
  [...rows].sort((a, b) => b.seq - a.seq).map((row) => [count(row.step),
    count(row.epoch), dateTime(row.at_s), row.state_bytes > 0 ?
      bytes(row.state_bytes) : DASH, orDash(row.server)]));
}

function checkpoints(job) {
  const last = job.last_generation;
  return facts([
    ['last checkpoint', last ? `step ${count(last.step)}, epoch ${
      count(last.epoch)}` : 'none yet'],
    ['steps since', last && job.steps_done >= last.step ?
      count(job.steps_done - last.step) : DASH,
    'They are done again if its process is lost'],
    ['directory', el('code', {}, orDash(job.checkpoint_directory))],
    ['tensors', orDash(job.memory)],
    ['processes so far', count(job.incarnations)],
    ['failures in a row', count(job.failures_in_a_row)],
    ['last failed process', !job.exit ? DASH : isNumber(job.exit.signal) ?
      `signal ${job.exit.signal}` : `exit code ${orDash(job.exit.exit_code)}`],
  ]);
}

function throughputs(why) {
  const rows = listOf(why.throughputs);
  if (rows.length === 0) return el('p', {class: 'empty'}, 'None is known.');
  return plainTable('Throughput by type', [{label: 'Type'},
    {label: 'Steps/s', number: true}, {label: 'Source'},
    {label: 'In the job file', number: true}],
  rows.map((row) => [row.type, short(row.steps_per_s), sourceKey(row.source, true),
    isNumber(row.given) ? short(row.given) : DASH]));
}

export function jobPage(context, id) {
  const page = {title: `Job ${id}`};
  const fault = el('p', {class: 'fault', role: 'alert', hidden: true});
  const heading = el('h1', {}, `Job ${id}`);
  const stateBox = el('span');
  const why = el('p', {class: 'why'});
  const buttons = el('div', {class: 'buttons'});
  const summaryBox = el('div');
  const checkpointBox = el('div');
  const generationBox = scroller('Checkpoints, newest first');
  const throughputBox = scroller('Throughput by type');
  const staysNote = el('p', {class: 'remark'});
  const gantt = new Gantt({title: 'Rounds, pauses and moves'});
  const speed = new LineChart({title: 'Steps per second', min: 0,
    empty: 'No report of a worker yet.'});
  const loss = new LineChart({title: 'Loss', x: 'count', xTitle: 'step',
    empty: 'The program has reported no loss.'});
  const log = el('pre', {class: 'log', tabindex: 0, role: 'region',
    'aria-label': 'Output'});
  const follow = el('input', {type: 'checkbox', checked: true});
  const wrap = el('input', {type: 'checkbox',
    onchange: () => log.classList.toggle('wrap', wrap.checked)});
  const logNote = el('span', {class: 'remark'});
  const live = new Series();  // of losses since the page was opened
  let past = [];
  let over = false;
  let logDue = 0;
  let logIsLast = false;  // the job is over, and its output has been read since

  const showLoss = () => loss.show([{name: 'loss', points: [...past,
    ...live.points.filter((point) => !past.length ||
      point.x > past[past.length - 1].x)].slice(-POINTS_MAX)}]);

  function showButtons(job) {
    redraw(buttons, `${job.state} ${context.mayAct()}`, () => {
      if (!context.mayAct()) {
        return el('p', {class: 'remark'}, 'Read only. ', el('code', {},
            'gavel dashboard'), ' prints a link that may change things.');
      }
      return Object.entries(ACTIONS).map(([action, may]) => actionButton(action,
          {disabled: !may(job.state)}, () => confirmAction({action, target: job.id,
            name: `job ${id} ${job.name || ''}`.trim(), announce: context.announce,
            done: () => poll.now()})));
    });
  }

  const poll = new Poll(() => get(`api/job/${encodeURIComponent(id)}`), (document, now) => {
    const {job, why: reasons, leases, steps, generations: written} =
        partsOf(document);
    fault.hidden = true;
    page.title = `Job ${id} ${job.name || ''}`.trim();
    heading.textContent = page.title;
    globalThis.document.title = `${page.title} · Gavel`;
    over = isOver(job.state);
    redraw(stateBox, job.state, () => jobBadge(job.state));
    why.textContent = orDash(reasons.reason || job.reason);
    showButtons(job);
    redraw(summaryBox, JSON.stringify([job, reasons]), () => summary(job, reasons));
    redraw(checkpointBox, JSON.stringify([job.last_generation, job.steps_done,
      job.memory, job.incarnations, job.failures_in_a_row, job.exit]), () =>
      checkpoints(job));
    generationBox.hidden = written.length === 0;
    redraw(generationBox, JSON.stringify(written), () => generations(written));
    redraw(throughputBox, JSON.stringify(reasons.throughputs), () =>
      throughputs(reasons));
    gantt.element.hidden = leases.length === 0;
    const moved = showStays(gantt, leases, now)
        .filter((stay) => stay.kind === 'move').length;
    staysNote.textContent = leases.length === 0 ? 'It has had no accelerator yet.' :
      `${plural(leases.length, 'stay')} on accelerators, ${plural(moved, 'move')}${
        leases.length > STAYS_MAX ? `; the last ${STAYS_MAX} are shown` : ''}`;
    speed.show([{name: 'steps/s', points: steps.map((row) => ({x: row.at_s,
      y: row.steps_per_s})).filter((point) => isNumber(point.x) &&
        isNumber(point.y))}]);
    if (lossOf(job) !== null) live.add(job.steps_done, lossOf(job));
    showLoss();
  }, (error) => {
    fault.textContent = error.status === 404 ?
      `There is no job ${id}: ${error.message}` :
      `The job could not be read: ${error.message}`;
    fault.hidden = false;
  }, () => `job ${id}`);

  const lossPoll = new Poll(() => get(`api/job/${encodeURIComponent(id)}/loss`),
      (document) => {
        past = lossPoints(document);
        showLoss();
      }, () => {});
  const logPoll = new Poll(() => get(
      `api/job/${encodeURIComponent(id)}/log?tail=${LOG_LINES}`), (document) => {
    const text = textOf(document);
    if (log.textContent !== text) {
      log.textContent = text;
      if (follow.checked) log.scrollTop = log.scrollHeight;
    }
    const lines = text.replace(/\n$/, '').split('\n').length;
    logNote.textContent = !text ? 'nothing yet' : `${document.complete === false ?
      'not up to the end: ' : 'the last '}${
      plural(lines, 'line')} of rank 0${document.server ?
      ` on ${document.server}` : ''}`;
  }, (error) => {
    logNote.textContent = `not to be had: ${error.message}`;
    logDue = performance.now() / 1000 + LOG_RETRY_S;
  });

  page.element = el('div', {class: 'page'},
      el('p', {class: 'crumbs'}, el('a', {href: '#/jobs'}, 'Jobs')),
      el('div', {class: 'job-head'}, heading, stateBox, buttons), why, fault,
      panel('Now', '', summaryBox),
      panel('Rounds, pauses and moves', '', staysNote, gantt.element),
      el('div', {class: 'pair-of-panels'}, panel('Speed', 'steps per second', speed.element),
          panel('Loss', '', loss.element)),
      el('div', {class: 'pair-of-panels'}, panel('Checkpoints and processes', '',
          checkpointBox, generationBox), panel('Throughput by type', '', sourceLegend(),
            throughputBox)),
      el('section', {class: 'panel', 'aria-labelledby': 'h-log'},
          el('div', {class: 'panel-head'}, el('h2', {id: 'h-log'}, 'Output'),
              logNote, el('span', {class: 'filters'},
              el('label', {class: 'field'}, follow, ' follow'),
              el('label', {class: 'field'}, wrap, ' wrap lines'))), log));
  page.update = () => {
    poll.turn();
    const now = performance.now() / 1000;
    if (now < logDue || logIsLast) return;
    logDue = now + LOG_PAUSE_S;
    logIsLast = over;
    logPoll.turn();
    lossPoll.turn();
  };
  page.end = () => {
    for (const one of [poll, lossPoll, logPoll]) one.end();
    speed.end();
    loss.end();
  };
  return page;
}
