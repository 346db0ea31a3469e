// The cluster: servers and their accelerators, which jobs have them until when,
// and how they are.
import {el, svg, panel, redraw} from './dom.js';
import {Poll, get} from './api.js';
import {actionButton, confirmAction} from './actions.js';
import {DASH, bytes, count, dateTime, isNumber, orDash, plural,
  relativeText} from './format.js';
import {joinServers} from './model.js';
import {acceleratorBadge, acceleratorState, shape} from './states.js';
import {WindowTable} from './table.js';
import {partBar} from './bars.js';

const CELL = 15;
const GAP = 3;
const MAP_MAX = 4096;  // accelerators drawn; the table lists all

const BAD = ['hung', 'quarantined', 'lost', 'unreachable', 'down'];

// All CPU slots have the same device.
const name = (row) => (row.device === 'cpu' ? row.uuid : row.device) || row.uuid || DASH;
const jobLinks = (ids, note) => (ids || []).map((id, i) => [i || note ? ' ' : '',
  note || '', el('a', {href: `#/job/${id}`}, String(id))]);

// What sorts cuda:2 before cuda:10.
const inOrder = (text) => text.replace(/\d+/g, (digits) => digits.padStart(9, '0'));

// "job 12 until its round ends", for one accelerator.
function jobsCell(row) {
  const parts = [jobLinks(row.jobs), jobLinks(row.starting_jobs, 'starting '),
    jobLinks(row.kept_jobs, 'kept ')].flat(3).filter((part) => part !== '');
  return parts.length ? parts : DASH;
}

function healthText(row) {
  const parts = [];
  if (isNumber(row.speed) && row.speed < 1) {
    parts.push(`straggler, ${Math.round(100 * row.speed)} % of its type's speed`);
  }
  if (isNumber(row.last_xid)) parts.push(`Xid ${row.last_xid}`);
  if (row.uncorrectable_errors > 0) {
    parts.push(plural(row.uncorrectable_errors, 'uncorrectable error'));
  }
  for (const why of [row.drained_for, row.lost_for]) if (why) parts.push(why);
  return parts.join('; ');
}

// Time at which the job may have to leave; seconds since 1970.
function untilOf(row, now, roundEnd) {
  if (isNumber(row.drain_in_s)) return now + row.drain_in_s;
  return (row.jobs || []).length ? roundEnd : null;
}

const COLUMNS = (context, page) => [
  {key: 'server', label: 'Server', width: 11,
    value: (row) => inOrder(`${row.server} ${name(row)}`), text: (row) => orDash(row.server)},
  {key: 'device', label: 'Accelerator', width: 11,
    value: (row) => inOrder(name(row)), text: name, hint: (row) => orDash(row.uuid)},
  {key: 'type', label: 'Type', width: 6, value: (row) => row.type,
    text: (row) => orDash(row.type)},
  {key: 'state', label: 'State', width: 8, value: (row) => row.state,
    sign: (row) => row.state, cell: (row) => acceleratorBadge(row.state)},
  {key: 'jobs', label: 'Jobs', width: 8,
    title: 'Jobs that hold it; a packed pair is two. Kept: paused, still in its memory',
    value: (row) => (row.jobs || [])[0],
    sign: (row) => JSON.stringify([row.jobs, row.starting_jobs, row.kept_jobs]),
    cell: jobsCell},
  {key: 'until', label: 'Held until', width: 8, number: true,
    title: 'The end of the round, when others may get it; or when its drain ends',
    value: (row) => untilOf(row, page.at, context.roundEnd()),
    text: (row) => {
      const until = untilOf(row, page.at, context.roundEnd());
      return until === null ? DASH : relativeText(Math.round(until));
    },
    hint: (row) => dateTime(untilOf(row, page.at, context.roundEnd()))},
  {key: 'use', label: 'Use', width: 9, number: true,
    title: 'Utilisation as its driver tells',
    value: (row) => row.utilisation_percent,
    sign: (row) => String(row.utilisation_percent),
    cell: (row) => isNumber(row.utilisation_percent) ? partBar(
        row.utilisation_percent / 100, `${Math.round(row.utilisation_percent)} %`) :
      DASH},
  {key: 'temperature', label: 'Temp.', width: 5, number: true,
    value: (row) => row.temperature_c,
    text: (row) => isNumber(row.temperature_c) ?
      `${Math.round(row.temperature_c)} °C` : DASH},
  {key: 'memory', label: 'Memory', width: 6, number: true,
    value: (row) => row.memory_bytes,
    text: (row) => row.memory_bytes > 0 ? bytes(row.memory_bytes) : DASH},
  {key: 'health', label: 'Health', width: 14, grow: true, value: healthText,
    text: (row) => healthText(row) || 'no complaint', hint: healthText},
  ...(context.mayAct() ? [{key: 'act', label: 'Actions', width: 6.5,
    sign: (row) => `${row.uuid} ${row.drained}`,
    cell: (row) => {
      const action = row.drained ? 'undrain' : 'drain';
      const target = `${row.server}/${row.uuid}`;
      return actionButton(action, {'aria-label': `${action === 'drain' ?
        'Drain' : 'Resume'} ${name(row)} of ${row.server}`}, () =>
        confirmAction({action, target, name: target, done: () => page.poll.now(),
          announce: context.announce}));
    }}] : []),
];

// Accelerators as squares, by server.
function drawMap(servers) {
  const shown = servers.reduce((n, one) => n + one.accelerators.length, 0);
  const map = el('div', {class: 'map', role: 'img', 'aria-label':
    'Each accelerator as a square, by server; the table below has the same'});
  let left = MAP_MAX;
  for (const server of servers) {
    if (left <= 0) break;
    const list = server.accelerators.slice(0, left);
    left -= list.length;
    const wide = Math.min(8, Math.max(1, list.length));
    const rows = Math.max(1, Math.ceil(list.length / wide));
    const width = wide * (CELL + GAP);
    const height = rows * (CELL + GAP);
    map.append(el('div', {class: 'map-server'},
        el('span', {class: 'map-name', title: server.server}, server.server),
        svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height},
            list.map((row, i) => {
              const state = acceleratorState(row.state);
              const x = (i % wide) * (CELL + GAP);
              const y = Math.floor(i / wide) * (CELL + GAP);
              return svg('g', {class: `square tone-${state.tone} shape-${state.shape}`},
                  svg('title', {}, `${server.server} ${name(row)}, ${row.type}: ${
                    row.state}${(row.jobs || []).length ? `, job ${
                    row.jobs.join(', ')}` : ''}`),
                  svg('rect', {x: x + 0.75, y: y + 0.75, width: CELL - 1.5,
                    height: CELL - 1.5, rx: 2}),
                  (row.jobs || []).length > 1 ? svg('path', {class: 'pair',
                    d: `M${x} ${y + CELL}L${x + CELL} ${y}`}) : null,
                  state.letter ? svg('text', {x: x + CELL / 2, y: y + 11,
                    'text-anchor': 'middle'}, state.letter) : null);
            }))));
  }
  if (shown > MAP_MAX) {
    map.append(el('p', {class: 'remark'}, `${count(shown - MAP_MAX)} more are ` +
        'only in the table'));
  }
  return map;
}

const LEGEND = ['allocated', 'idle', 'starting', 'draining', 'drained', 'hung',
  'lost'];

function legend() {
  return el('ul', {class: 'legend'}, LEGEND.map((word) => {
    const state = acceleratorState(word);
    return el('li', {}, svg('svg', {viewBox: '0 0 15 15', class: 'key-svg',
      'aria-hidden': 'true'}, svg('g', {class: `square tone-${state.tone} shape-${
      state.shape}`}, svg('rect', {x: 0.75, y: 0.75, width: 13.5, height: 13.5,
      rx: 2}), state.letter ? svg('text', {x: 7.5, y: 11,
      'text-anchor': 'middle'}, state.letter) : null)), word === 'lost' ?
      'lost or unreachable' : word);
  }), el('li', {}, svg('svg', {viewBox: '0 0 15 15', class: 'key-svg',
    'aria-hidden': 'true'}, svg('g', {class: 'square tone-green shape-square'},
  svg('rect', {x: 0.75, y: 0.75, width: 13.5, height: 13.5, rx: 2}),
  svg('path', {class: 'pair', d: 'M0 15L15 0'}))), 'shared by two jobs'));
}

// One figure for each type: how many of its accelerators are in use.
function typeCards(rows) {
  const types = new Map();
  for (const row of rows) {
    const sum = types.get(row.type) || {all: 0, used: 0, bad: 0, use: 0, told: 0};
    sum.all += 1;
    sum.used += (row.jobs || []).length ? 1 : 0;
    sum.bad += BAD.includes(row.state) ? 1 : 0;
    if (isNumber(row.utilisation_percent)) {
      sum.use += row.utilisation_percent;
      sum.told += 1;
    }
    types.set(row.type, sum);
  }
  return [...types].sort(([a], [b]) => a < b ? -1 : 1).map(([type, sum]) =>
    el('div', {class: 'card'}, el('span', {class: 'card-label'}, orDash(type)),
        el('span', {class: 'card-value'}, `${count(sum.used)}`,
            el('span', {class: 'card-of'}, ` of ${count(sum.all)} in use`)),
        partBar(sum.used / sum.all, ''),
        el('span', {class: 'card-note'}, sum.told ?
          `${Math.round(sum.use / sum.told)} % utilised` : 'utilisation not told',
        sum.bad ? [' · ', shape('stop', 'red'), ` ${plural(sum.bad, 'fault')}`] :
          null)));
}

export function clusterPage(context) {
  const page = {title: 'Cluster', at: 0};
  const fault = el('p', {class: 'fault', role: 'alert', hidden: true});
  const cards = el('div', {class: 'cards'});
  const map = el('div');
  const servers = el('p', {class: 'remark'});
  const search = el('input', {type: 'search', id: 'cluster-search',
    placeholder: 'server, type, state, job', value: context.route.query.get('q') ||
      '', oninput: () => {
      context.setQuery({q: search.value});
      show();
    }});
  const table = new WindowTable({caption: 'Accelerators',
    columns: COLUMNS(context, page), sort: context.route.query.get('sort') ||
      'server', key: (row) => `${row.server}/${row.uuid}`,
    onSort: (sort) => context.setQuery({sort}), height: 'mid',
    empty: 'No server has joined. Start `gavel agent` on one.'});
  let rows = [];
  let nodes = [];

  const matches = (row, words) => {
    const text = `${row.server} ${row.uuid} ${row.device} ${row.type} ${row.state} ` +
        `${(row.jobs || []).map((id) => `job ${id}`).join(' ')}`.toLowerCase();
    return words.every((word) => text.toLowerCase().includes(word));
  };
  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.setRows(words.length ? rows.filter((row) => matches(row, words)) : rows,
        words.length ? 'No accelerator matches.' : '');
  }

  page.poll = new Poll(async () => {
    const answer = await get('api/nodes');
    return joinServers(Array.isArray(answer) ? answer : answer.nodes || []);
  }, (list, at) => {
    nodes = list;
    page.at = at;
    rows = nodes.flatMap((node) => node.accelerators.map((row) =>
      ({...row, server: node.server})));
    fault.hidden = true;
    const down = nodes.filter((node) => node.state === 'down').length;
    const parked = nodes.reduce((sum, node) => sum + (node.parked_bytes || 0), 0);
    servers.textContent = `${plural(nodes.length, 'server')}, ${
      down ? `${count(down)} down, ` : ''}${plural(rows.length, 'accelerator')}${
      parked ? `; ${bytes(parked)} of paused jobs in host memory` : ''}`;
    redraw(cards, JSON.stringify(rows.map((row) => [row.type, row.state,
      (row.jobs || []).length > 0, row.utilisation_percent])), () =>
      typeCards(rows));
    redraw(map, JSON.stringify(nodes.map((node) => [node.server,
      node.accelerators.map((row) => [row.uuid, row.state, row.jobs])])), () =>
      nodes.length ? drawMap(nodes) : []);
    show();
  }, (error) => {
    fault.textContent = `Servers could not be read: ${error.message}`;
    fault.hidden = false;
  }, () => 'nodes');

  const head = panel('Servers', '', cards, legend(), map);
  head.querySelector('.panel-head').append(servers);
  page.element = el('div', {class: 'page'}, el('h1', {class: 'unseen'}, 'Cluster'),
      fault, head, el('section', {class: 'panel', 'aria-labelledby': 'h-acc'},
          el('div', {class: 'panel-head'}, el('h2', {id: 'h-acc'}, 'Accelerators'),
              el('label', {class: 'field'}, 'Find ', search)), table.element));
  page.update = () => page.poll.turn();
  page.tick = () => table.schedule();
  page.end = () => {
    page.poll.end();
    table.end();
  };
  return page;
}

