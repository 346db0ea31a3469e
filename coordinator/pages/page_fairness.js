// Fairness: what users and apps get, against what the policy intends for them.
import {el, panel, plainTable, redraw, scroller} from './dom.js';
import {Poll, get, getAll} from './api.js';
import {LineChart, Series} from './charts.js';
import {DASH, count, dateTime, fixed, isNumber, orDash, percent,
  plural, short} from './format.js';
import {appName, sharesByApp, sharesByUser} from './model.js';
import {ratioBar} from './bars.js';

const NAMES_MAX = 50;    // series that are kept
const ROWS_MAX = 200;

// The coordinator takes a sample in each round. What the page has seen since it
// was first opened is kept here, and shown behind the last sample; it stays while
// other pages are shown.
const record = {users: {share: new Map(), rho: new Map()},
  apps: {share: new Map(), rho: new Map()}};

function note(series, name, x, y) {
  if (!isNumber(y)) return;
  if (!series.has(name)) {
    if (series.size >= NAMES_MAX) return;
    series.set(name, new Series());
  }
  series.get(name).add(x, y);
}

function noteAll(series, sums, now) {
  for (const one of sums) {
    if (one.target > 0) note(series.share, one.name, now, one.got / one.target);
    note(series.rho, one.name, now, one.rho);
  }
}

const listOf = (value) => Array.isArray(value) ? value : [];

// The samples of the coordinator, and behind them what this page has seen.
function lines(samples, kind, key, order) {
  const times = listOf(samples && samples.at_s);
  const last = times.length ? times[times.length - 1] : 0;
  const series = new Map();
  for (const row of listOf(samples && samples[kind])) {
    const points = times.map((x, i) => ({x, y: listOf(row[key])[i]}))
        .filter(({y}) => isNumber(y));
    if (points.length) series.set(appName(row.name, row.owner), points);
  }
  for (const [name, {points}] of record[kind][key]) {
    series.set(name, [...series.get(name) || [],
      ...points.filter(({x}) => x > last)]);
  }
  return [...series].filter(([, points]) => points.length).map(([name, points]) =>
    ({name: name || 'no user', points})).sort((a, b) => order(b) - order(a));
}

const lastOf = (line) => line.points.length ?
  line.points[line.points.length - 1].y : 0;

// The shares that the policy intended, from the history.
function intended(rows) {
  const series = new Map();
  for (const row of rows) {
    for (const [user, accelerators] of Object.entries(row.entitled || {})) {
      if (series.size >= NAMES_MAX && !series.has(user)) continue;
      if (!series.has(user)) series.set(user, []);
      if (isNumber(row.from_s)) series.get(user).push({x: row.from_s, y: accelerators});
    }
  }
  return [...series].map(([name, points]) => ({name: name || 'no user', points}))
      .sort((a, b) => lastOf(b) - lastOf(a));
}

// Received over intended, said in words too: 1 is as intended.
function verdict(target, got) {
  if (!(target > 0)) return DASH;
  const ratio = got / target;
  const word = ratio < 0.9 ? 'less' : ratio > 1.1 ? 'more' : 'even';
  return ratioBar(ratio, `${percent(ratio)} (${word})`);
}

function rhoText(rho) {
  if (!isNumber(rho)) return DASH;
  const word = rho > 1.1 ? 'later' : rho < 0.9 ? 'sooner' : 'even';
  return ratioBar(rho, `${fixed(rho)} (${word})`);
}

export function fairnessPage(context) {
  const fault = el('p', {class: 'fault', role: 'alert', hidden: true});
  const users = scroller('Users');
  const leftOut = el('p', {class: 'remark', hidden: true});
  const apps = scroller('Apps');
  const usage = scroller('Used so far');
  const usageSince = el('p', {class: 'remark'});
  const empty = 'No job names an app; rho belongs to apps.';
  const shareChart = (by) => new LineChart({title:
    `Received over intended share, by ${by}`, captioned: true, mark: {y: 1,
    label: 'as intended'}, min: 0, max: 1.2,
  empty: by === 'app' ? 'No job names an app.' : 'No job has a share yet.'});
  const rhoChart = (by) => new LineChart({title: `Finish-time ratio rho, by ${by}`,
    captioned: true, mark: {y: 1, label: 'an equal part of the cluster'}, min: 0,
    max: 1.2, empty});
  const unfair = (line) => Math.abs(1 - lastOf(line));
  // [chart, of whom, what, which lines come first].
  const charts = [
    [shareChart('user'), 'users', 'share', unfair],
    [rhoChart('user'), 'users', 'rho', lastOf],
    [shareChart('app'), 'apps', 'share', unfair],
    [rhoChart('app'), 'apps', 'rho', lastOf],
  ];
  const meant = new LineChart({title: 'Accelerators intended, by user', captioned: true,
    yTitle: 'accelerators', min: 0,
    empty: 'No round has been recorded yet.'});
  const since = el('p', {class: 'remark'});

  const poll = new Poll(async () => {
    const [fairness, jobs] = await Promise.all([get('api/fairness'),
      getAll('api/jobs', 'jobs')]);
    return {fairness, jobs};
  }, ({fairness, jobs}, now) => {
    fault.hidden = !fairness.usage_error;
    fault.textContent = fairness.usage_error ?
      `The use so far could not be read: ${fairness.usage_error}` : '';
    const shares = sharesByUser(jobs);
    const appRows = (Array.isArray(fairness.apps) ? fairness.apps : [])
        .slice().sort((a, b) => (b.rho ?? -1) - (a.rho ?? -1));
    // As in the samples: one that is held has no part in them.
    const active = jobs.filter((job) => job.state !== 'F');
    noteAll(record.users, sharesByUser(active), now);
    noteAll(record.apps, sharesByApp(active), now);
    const {samples} = fairness;
    for (const [chart, kind, key, order] of charts) {
      chart.show(lines(samples, kind, key, order));
    }
    meant.show(intended(Array.isArray(fairness.shares) ? fairness.shares : []));
    const first = listOf(samples && samples.at_s)[0];
    since.textContent = 'a sample in each round' + (isNumber(first) ?
      `, since ${dateTime(first)}` : '');

    const opaque = jobs.filter((job) => job.opaque).length;
    leftOut.hidden = opaque === 0;
    leftOut.textContent = `In no share: ${plural(opaque, 'job')} without reports of ` +
      'steps. Such a job keeps its accelerators until its end.';

    redraw(users, JSON.stringify(shares), () => shares.length === 0 ?
      el('p', {class: 'empty'}, 'No job is present.') :
      plainTable('Users', [{label: 'User'},
        {label: 'Jobs', number: true}, {label: 'Running', number: true},
        {label: 'Held', number: true, title: 'Accelerators held now'},
        {label: 'Intended', number: true, title: 'Share of time times workers'},
        {label: 'Received', number: true}, {label: 'Received / intended',
          number: true}], shares.slice(0, ROWS_MAX).map((one) => [orDash(one.name),
        count(one.jobs), count(one.running), count(one.held), fixed(one.target),
        fixed(one.got), verdict(one.target, one.got)])));
    redraw(apps, JSON.stringify(appRows), () => appRows.length === 0 ?
      el('p', {class: 'empty'}, 'No job names an app (`app` of the job file).') :
      plainTable('Apps', [{label: 'App'}, {label: 'User'},
        {label: 'Jobs', number: true}, {label: 'Running', number: true},
        {label: 'Held', number: true, title: 'Accelerators held now'},
        {label: 'Work left', number: true, title: 'Accelerator-hours'},
        {label: 'Rho', number: true, title:
          'Time to finish over that with an equal part of the cluster'},
        {label: 'Bids'}], appRows.slice(0, ROWS_MAX).map((one) => [orDash(one.app),
        orDash(one.owner), count(one.jobs), count(one.running),
        count(one.accelerators), isNumber(one.left_accelerator_s) ?
          `${short(one.left_accelerator_s / 3600)} h` : DASH, rhoText(one.rho),
        orDash(one.bidder)])));
    const used = Array.isArray(fairness.users) ? fairness.users : [];
    usagePanel.hidden = used.length === 0;
    usageSince.textContent = `accelerator-hours${isNumber(fairness.since_s) ?
      ` since ${dateTime(fairness.since_s)}` : ''}`;
    redraw(usage, JSON.stringify(used), () => plainTable('Used so far',
        [{label: 'User'}, {label: 'Used', number: true},
          {label: 'Of it opaque', number: true, title: 'By jobs that keep their ' +
            'accelerators until their end: no share is intended for them'},
          {label: 'Intended', number: true},
          {label: 'Used / intended', number: true, title: 'Without opaque hours'}],
        used.slice(0, ROWS_MAX).map((one) => [orDash(one.user),
          `${fixed(one.used_h)} h`,
          one.opaque_h > 0 ? `${fixed(one.opaque_h)} h` : DASH,
          `${fixed(one.entitled_h)} h`,
          verdict(one.entitled_h,
              Math.max(0, one.used_h - (one.opaque_h || 0)))])));
  }, (error) => {
    fault.textContent = `Fairness could not be read: ${error.message}`;
    fault.hidden = false;
  }, () => 'fairness');

  const elements = charts.map(([chart]) => chart.element);
  const overTime = panel('Over time', '',
      el('div', {class: 'pair-of-charts'}, elements.slice(0, 2)),
      el('div', {class: 'pair-of-charts'}, elements.slice(2)), meant.element);
  overTime.querySelector('.panel-head').append(since);
  const usagePanel = panel('Used so far', '', usage);
  usagePanel.querySelector('.panel-head').append(usageSince);
  return {
    title: 'Fairness',
    element: el('div', {class: 'page'}, el('h1', {class: 'unseen'}, 'Fairness'),
        fault, el('div', {class: 'pair-of-panels'}, panel('Users', 'accelerators that ' +
          'the policy intends, and that their jobs received', users, leftOut), panel('Apps',
            'rho below 1: sooner than with an equal part of the cluster', apps)),
        overTime, usagePanel),
    update: () => poll.turn(),
    end: () => {
      poll.end();
      for (const chart of [...charts.map(([one]) => one), meant]) chart.end();
    },
  };
}
