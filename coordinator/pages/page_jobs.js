// All jobs that have not ended, or those of a state: filter, sort, open one. The
// elements of an array are one row, which leads to the list of them.
import {el} from './dom.js';
import {Poll, getAll} from './api.js';
import {DASH, count, dateTime, duration, fixed, isNumber, orDash, percent,
  relativeText, short} from './format.js';
import {expectedEnd, foldArrays, lossOf, progressOf, typesOf} from './model.js';
import {JOB_STATES, jobBadge} from './states.js';
import {WindowTable, amount} from './table.js';
import {partBar, shareBar} from './bars.js';

// Running jobs first.
const ORDER = Object.keys(JOB_STATES);
// In the title of a cell.
const PLACES_MAX = 64;

// The array's list keeps the filters that its elements have passed.
function hrefOf(row) {
  if (!row.elements) return `#/job/${row.id}`;
  const query = new URLSearchParams(location.hash.split('?')[1] || '');
  query.set('array', row.id);
  return `#/jobs?${query}`;
}

const COLUMNS = [
  {key: 'id', label: 'Job', width: 4.4, number: true, value: (r) => r.id,
    sign: (r) => r.elements ? `${hrefOf(r)} ${r.name}` : String(r.id),
    cell: (r) => el('a', {href: hrefOf(r), 'aria-label': `${r.elements ? 'Array' :
      'Job'} ${r.id}, ${orDash(r.name)}`}, String(r.id))},
  {key: 'name', label: 'Name', width: 10.5, value: (r) => r.name || '',
    text: (r) => orDash(r.name), hint: (r) => r.name || ''},
  {key: 'owner', label: 'User', width: 5.4, value: (r) => r.owner || '',
    text: (r) => orDash(r.owner), hint: (r) => r.owner || ''},
  {key: 'app', label: 'App', width: 5.4, spare: true, value: (r) => r.app || '',
    text: (r) => orDash(r.app), hint: (r) => r.app || ''},
  {key: 'state', label: 'State', width: 6.9, value: (r) => ORDER.indexOf(r.state),
    sign: (r) => r.state, cell: (r) => jobBadge(r.state),
    hint: (r) => r.elements ? r.reason : ''},
  {key: 'accelerators', label: 'Accelerators', width: 8.2,
    value: (r) => (r.accelerators || []).length || null, text: (r) => typesOf(r) ||
      DASH, hint: (r) => (r.accelerators || []).slice(0, PLACES_MAX).map((a) =>
      `${a.server}/${a.uuid}`).join('\n')},
  {key: 'share_target', label: 'Target / got', width: 13.9, number: true,
    title: 'Share of time that the policy intends, and the one received',
    value: (r) => r.opaque ? null : r.share_target,
    sign: (r) => r.opaque ? '' : `${fixed(r.share_target, 3)} ${fixed(r.share_got, 3)}`,
    cell: (r) => r.opaque ? DASH : shareBar(r.share_target, r.share_got),
    hint: (r) => r.opaque ? 'It reports no steps and keeps its accelerators until ' +
      'its end: it has no share' : ''},
  {key: 'steps_per_s', label: 'Steps/s', width: 5.4, spare: true, number: true,
    value: (r) => r.steps_per_s > 0 ? r.steps_per_s : null,
    text: (r) => r.steps_per_s > 0 ? short(r.steps_per_s) : DASH},
  {key: 'loss', label: 'Loss', width: 5, spare: true, number: true, value: lossOf,
    text: (r) => lossOf(r) === null ? DASH : short(lossOf(r))},
  {key: 'progress', label: 'Progress', width: 9.2, number: true,
    value: progressOf,
    sign: (r) => `${r.steps_done}/${r.steps_total}`,
    cell: (r) => progressOf(r) === null ? `${short(r.steps_done)} steps` :
      partBar(progressOf(r), percent(progressOf(r))),
    hint: (r) => `${count(r.steps_done)} of ${
      r.steps_total > 0 ? count(r.steps_total) : 'open'} steps`},
  {key: 'end', label: 'Expected end', width: 8, number: true,
    title: 'At its present speed and its target share',
    value: (r) => expectedEnd(r),
    text: (r) => r.ended_at_s ? relativeText(r.ended_at_s) :
      relativeText(expectedEnd(r)), hint: (r) => dateTime(expectedEnd(r))},
  {key: 'age_s', label: 'Age', width: 6.8, spare: true, number: true,
    value: (r) => r.age_s, text: (r) => isNumber(r.age_s) ? duration(r.age_s) :
      DASH, hint: (r) => dateTime(r.submitted_at_s)},
  {key: 'reason', label: 'Why', width: 10, grow: true, value: (r) => r.reason || '',
    text: (r) => orDash(r.reason), hint: (r) => r.reason || ''},
];

function options(select, values, all, chosen) {
  const wanted = [['', all], ...values];
  const signature = JSON.stringify(wanted);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  select.replaceChildren(...wanted.map(([value, text]) => el('option',
      {value, selected: value === chosen}, text)));
}

const distinct = (rows, key) => [...new Set(rows.map((r) => r[key])
    .filter(Boolean))].sort().map((value) => [value, value]);

export function jobsPage(context) {
  const {query} = context.route;
  const chosen = {state: query.get('state') || '', user: query.get('user') || '',
    app: query.get('app') || '', q: query.get('q') || '',
    array: query.get('array') || ''};
  const fault = el('p', {class: 'fault', role: 'alert', hidden: true});
  const shown = el('span', {class: 'amount', role: 'status'});
  let rows = null;

  const set = (key, value, again) => {
    chosen[key] = value;
    context.setQuery({[key]: value});
    if (again) {
      shown.textContent = 'loading';
      poll.now();
    } else {
      show();
    }
  };
  const search = el('input', {type: 'search', placeholder: 'name, id, reason',
    value: chosen.q, oninput: () => set('q', search.value)});
  const state = el('select', {onchange: () => set('state', state.value, true)});
  options(state, Object.entries(JOB_STATES).map(([letters, one]) =>
    [letters, `${letters} ${one.word}`]), 'not ended', chosen.state);
  const user = el('select', {onchange: () => set('user', user.value)});
  const app = el('select', {onchange: () => set('app', app.value)});
  const clear = el('button', {type: 'button', class: 'button', onclick: () => {
    for (const field of [search, state, user, app]) field.value = '';
    Object.assign(chosen, {state: '', user: '', app: '', q: '', array: ''});
    context.setQuery(chosen);
    showArray();
    poll.now();
    search.focus();
  }}, 'Clear');
  const table = new WindowTable({caption: 'Jobs', columns: COLUMNS,
    sort: query.get('sort') || 'state',
    key: (row) => row.elements ? `array ${row.id}` : row.id,
    onSort: (sort) => context.setQuery({sort}), height: 'tall',
    empty: 'No job here. `gavel submit job.toml` adds one.'});

  const array = el('p', {class: 'crumbs', hidden: true});
  function showArray() {
    array.hidden = !chosen.array;
    array.replaceChildren(el('a', {href: '#/jobs'}, 'Jobs'),
        ` / elements of array ${chosen.array}`);
  }
  showArray();

  const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  function matching() {
    const words = wordsOf(chosen.q);
    return rows.filter((row) => {
      if (chosen.user && row.owner !== chosen.user) return false;
      if (chosen.app && row.app !== chosen.app) return false;
      if (chosen.array && String(row.array) !== chosen.array) return false;
      if (words.length === 0) return true;
      const element = row.array ? `${row.array}_${row.array_index}` : '';
      const text = `${row.id} ${element} ${row.name} ${row.owner} ${row.app} ${
        row.reason} ${typesOf(row)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }
  function show() {
    if (!rows) return;
    options(user, distinct(rows, 'owner'), 'all users', chosen.user);
    options(app, distinct(rows, 'app'), 'all apps', chosen.app);
    const some = matching();
    const text = amount(some.length, rows.length, rows.length === 1 ? 'job' : 'jobs');
    if (shown.textContent !== text) shown.textContent = text;
    const lines = chosen.array ? some : foldArrays(some, wordsOf(chosen.q));
    table.setRows(lines, rows.length ? 'No job matches; Clear shows all.' : '');
  }

  const poll = new Poll(() => getAll(`api/jobs${chosen.state ?
    `?state=${encodeURIComponent(chosen.state)}` : ''}`, 'jobs'), (list) => {
    rows = list;
    fault.hidden = true;
    show();
  }, (error) => {
    fault.textContent = `Jobs could not be read: ${error.message}`;
    fault.hidden = false;
  }, () => `jobs ${chosen.state}`);

  return {
    title: 'Jobs',
    element: el('div', {class: 'page'}, array, fault,
        el('section', {class: 'panel', 'aria-labelledby': 'h-jobs'},
            el('div', {class: 'panel-head'}, el('h1', {id: 'h-jobs'}, 'Jobs'),
                shown, el('form', {class: 'filters', role: 'search',
                  'aria-label': 'Filter of jobs',
                  onsubmit: (event) => event.preventDefault()},
                el('label', {class: 'field'}, 'Find ', search),
                el('label', {class: 'field'}, 'State ', state),
                el('label', {class: 'field'}, 'User ', user),
                el('label', {class: 'field'}, 'App ', app), clear)),
            table.element)),
    update: () => poll.turn(),
    end: () => {
      poll.end();
      table.end();
    },
  };
}
