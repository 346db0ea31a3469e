// The policy: what it optimises, how the last solve went, what it knows of the
// throughputs, and another policy with a preview.
import {el, facts, panel, plainTable, redraw, scroller} from './dom.js';
import {Poll, get} from './api.js';
import {confirmAction} from './actions.js';
import {LineChart, Series} from './charts.js';
import {DASH, count, duration, isNumber, orDash, percent, short} from
  './format.js';
import {sourceKey, sourceLegend, sourceTone} from './sources.js';

const MATRIX_ROWS_MAX = 300;
const PREVIEW_ROWS_MAX = 200;

const record = {objective: new Series(), seconds: new Series(), of: ''};

function solve(status, document) {
  return facts([
    ['policy', orDash(status.policy)],
    ['by its options', orDash(status.policy_option),
      'The policy that the coordinator was started with'],
    ['mechanism', orDash(status.mechanism)], ['queue', orDash(status.queue)],
    ['outcome', orDash(status.outcome)], ['solver', orDash(status.solver)],
    ['objective', short(status.objective)], ['bound', short(status.bound)],
    ['gap', percent(status.gap, 2), 'Between the objective and its bound'],
    ['solve time', isNumber(document.solve_s) ? `${short(document.solve_s)} s` : DASH],
    ['round', `${duration(status.round_duration_s)}, leases of ${
      duration(status.lease_duration_s)}`],
    ['rounds so far', count(status.rounds)],
    ['shares by', [status.user_shares && 'user', status.app_shares && 'app',
      (status.entities || []).length && `entity: ${status.entities.map((one) =>
        `${one.name} (weight ${one.weight})`).join(', ')}`].filter(Boolean)
        .join('; ') || 'job'],
    ['time in profiling', status.profiling ? `${short(
        (status.profiling.accelerator_s || 0) / 3600)} h` : DASH],
    ['workers lost', status.failures ? count(status.failures.workers_lost) : DASH],
    ['detail', orDash(status.detail)],
  ]);
}

// Jobs by types; each number with the letter and colour of its source.
function matrix(rows, filter) {
  const wanted = rows.filter((row) => `${row.job} ${row.name}`.toLowerCase()
      .includes(filter.toLowerCase()));
  const types = [...new Set(wanted.flatMap((row) => (row.throughputs || [])
      .map((one) => one.type)))].sort();
  if (wanted.length === 0) return el('p', {class: 'empty'}, 'No job.');
  const lines = wanted.slice(0, MATRIX_ROWS_MAX).map((row) => {
    const known = new Map((row.throughputs || []).map((one) => [one.type, one]));
    return el('tr', {}, el('th', {scope: 'row'}, el('a', {href: `#/job/${row.job}`},
        `${row.job} ${row.name || ''}`)), types.map((type) => {
      const one = known.get(type);
      if (!one || !(one.steps_per_s > 0)) {
        return el('td', {class: 'number', title: 'It cannot run there, or nothing is known'}, DASH);
      }
      return el('td', {class: `number heat tone-${sourceTone(one.source)}`},
          short(one.steps_per_s), ' ', sourceKey(one.source, false));
    }));
  });
  return [el('table', {class: 'plain matrix'},
      el('caption', {class: 'unseen'}, 'Throughputs in steps per second, jobs by type'),
      el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'Job'), types.map(
          (type) => el('th', {scope: 'col', class: 'number'}, type)))),
      el('tbody', {}, lines)), wanted.length > MATRIX_ROWS_MAX ? el('p',
      {class: 'empty'}, `${count(wanted.length - MATRIX_ROWS_MAX)} more: find ` +
      'them by name') : null];
}

function previewTable(preview) {
  const jobs = preview.jobs || [];
  const changed = jobs.map((job) => ({...job, change: (job.share_then || 0) -
      (job.share_now || 0)})).filter((job) => Math.abs(job.change) >= 0.0005)
      .sort((a, b) => a.change - b.change);
  const lose = changed.filter((job) => job.change < 0).length;
  return el('div', {}, el('p', {}, `${preview.preview} instead of ${preview.policy}: ` +
      `of ${count(jobs.length)} jobs ${count(lose)} lose, ${count(changed.length -
        lose)} gain, ${count(jobs.length - changed.length)} keep their share.`),
  changed.length ? scroller('Changes of shares', plainTable('Changes of shares',
      [{label: 'Job'}, {label: 'Name'}, {label: 'User'}, {label: 'Now', number: true},
        {label: 'Then', number: true}, {label: 'Change', number: true}],
      changed.slice(0, PREVIEW_ROWS_MAX).map((job) => [String(job.id),
        orDash(job.name), orDash(job.user), percent(job.share_now, 1),
        percent(job.share_then, 1), `${job.change > 0 ? '+' : '−'}${
          percent(Math.abs(job.change), 1)}`]))) : null);
}

export function policyPage(context) {
  const fault = el('p', {class: 'fault', role: 'alert', hidden: true});
  const facts_ = el('div');
  const chart = new LineChart({title: 'Objective', captioned: true,
    empty: 'No solve has told an objective yet.'});
  const seconds = new LineChart({title: 'Solve time', captioned: true, yTitle: 's', min: 0,
    empty: 'The coordinator does not tell solve times.'});
  const table = scroller('Throughputs');
  const filter = el('input', {type: 'search', placeholder: 'job', oninput: () =>
    showMatrix()});
  const name = el('select', {required: true});
  const outcome = el('div', {role: 'status'});
  const leftOut = el('p', {class: 'remark', hidden: true},
      'Further jobs are left out; the page of a job has its own throughputs.');
  let rows = [];

  const showMatrix = () => redraw(table, JSON.stringify([rows, filter.value]), () =>
    matrix(rows, filter.value));

  const poll = new Poll(() => get('api/policy'), (document, now) => {
    const status = document.status || context.status || {};
    fault.hidden = true;
    redraw(facts_, JSON.stringify([status.policy, status.rounds, status.outcome,
      status.objective, status.gap, document.solve_s, status.profiling]), () =>
      solve(status, document));
    if (record.of !== status.policy) {
      Object.assign(record, {of: status.policy, objective: new Series(),
        seconds: new Series()});
    }
    record.objective.add(now, status.objective);
    record.seconds.add(now, document.solve_s);
    chart.show([{name: 'objective', points: record.objective.points}]);
    seconds.show([{name: 'solve time', points: record.seconds.points}]);
    seconds.element.hidden = !isNumber(document.solve_s);
    rows = Array.isArray(document.throughputs) ? document.throughputs : [];
    showMatrix();
    redraw(name, JSON.stringify(document.policies), () => (document.policies ||
        []).map((value) => el('option', {value}, value)));
    leftOut.hidden = !document.throughputs_left_out;
  }, (error) => {
    fault.textContent = `The policy could not be read: ${error.message}`;
    fault.hidden = false;
  }, () => 'policy');

  const say = (...children) => outcome.replaceChildren(...children);
  async function preview() {
    const wanted = name.value;
    say(el('p', {class: 'remark'}, 'Solving for both policies …'));
    try {
      const answer = await get(`api/policy?preview=${encodeURIComponent(wanted)}`);
      if (!answer || !answer.preview) {
        throw new Error('the coordinator gave none');
      }
      say(previewTable(answer), el('button', {type: 'button',
        class: 'button strong', onclick: () => confirmAction({action: 'policy',
          target: wanted, name: wanted, announce: context.announce,
          done: () => {
            say(el('p', {}, `${wanted} decides from now on.`));
            poll.now();
          }})}, `Set ${wanted}`));
    } catch (error) {
      say(el('p', {class: 'fault'}, `No preview: ${error.message}`));
    }
  }

  const form = context.mayAct() ? el('form', {class: 'filters', onsubmit: (event) => {
    event.preventDefault();
    preview();
  }}, el('label', {class: 'field'}, 'Policy ', name),
  el('button', {class: 'button strong'}, 'Preview')) : el('p', {class: 'remark'},
      'Read only. ', el('code', {}, 'gavel dashboard'), ' prints a link that may ' +
      'preview another policy and set it.');
  const throughputs = panel('Throughputs', 'steps per second', sourceLegend(), table,
      leftOut);
  throughputs.querySelector('.panel-head').append(el('label', {class: 'field'},
      'Find ', filter));
  return {
    title: 'Policy',
    element: el('div', {class: 'page'}, el('h1', {class: 'unseen'}, 'Policy'), fault,
        panel('Decides now', '', facts_),
        panel('Solves', 'since this tab was opened', el('div',
            {class: 'pair-of-charts'}, chart.element, seconds.element)),
        panel('Another policy', 'shows first what would change', form, outcome),
        throughputs),
    update: () => poll.turn(),
    end: () => {
      poll.end();
      chart.end();
      seconds.end();
    },
  };
}
