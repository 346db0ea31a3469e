// The frame of the dashboard: routes, the strip of the coordinator's state, and
// whether what is shown is live.
import {el, redraw} from './dom.js';
import {get, listen, mayAct, takeToken} from './api.js';
import {DASH, count, dateTime, duration, nowSeconds, orDash, percent,
  plural, relativeText} from './format.js';
import {JOB_STATES, shape} from './states.js';
import {clusterPage} from './page_cluster.js';
import {jobsPage} from './page_jobs.js';
import {jobPage} from './page_job.js';
import {fairnessPage} from './page_fairness.js';
import {policyPage} from './page_policy.js';

const PAGES = {cluster: clusterPage, jobs: jobsPage, job: jobPage,
  fairness: fairnessPage, policy: policyPage};
const TROUBLES_MAX = 8;
// An answer that takes long to make is shared for so long, also after a change.
const SHARED_MS_MAX = 10000;

const by = (id) => document.getElementById(id);

// What all pages share.
const context = {
  status: null,      // StatusRow, of the last event
  statusAt: 0,       // when it came
  announce,
  mayAct,
  route: {page: '', query: new URLSearchParams()},
  setQuery,
};
let page = null;
let link = {state: 'connecting', since: 0};

function announce(text) {
  by('announce').textContent = '';
  setTimeout(() => by('announce').textContent = text, 30);
}

// ---- Routes: '#/jobs?state=R', '#/job/12'

function parseRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, ...rest] = path.split('/');
  return {page: name in PAGES ? name : 'cluster',
    argument: decode(rest.join('/')), query: new URLSearchParams(query || '')};
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Puts a page's filters into the address, without a new entry in the history.
function setQuery(values) {
  const {query, page: name, argument} = context.route;
  for (const [key, value] of Object.entries(values)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  history.replaceState(null, '', `#/${name}${argument ?
    `/${encodeURIComponent(argument)}` : ''}${text ? `?${text}` : ''}`);
}

function showRoute(first) {
  if (page) page.end();
  const route = parseRoute();
  context.route = route;
  page = PAGES[route.page](context, route.argument);
  by('main').replaceChildren(page.element);
  document.title = `${page.title} · Gavel`;
  const tab = route.page === 'job' ? 'jobs' : route.page;
  for (const anchor of by('nav').children) {
    if (anchor.hash === `#/${tab}`) anchor.setAttribute('aria-current', 'page');
    else anchor.removeAttribute('aria-current');
  }
  if (!first) {
    scrollTo(0, 0);
    by('main').focus({preventScroll: true});
    announce(page.title);
  }
  page.update();
}

// ---- The strip: its cells stay, so that focus stays; their text changes.

function roundEnd() {
  const {status, statusAt} = context;
  if (!status || typeof status.round_ends_in_s !== 'number') return null;
  return statusAt + status.round_ends_in_s;
}
context.roundEnd = roundEnd;

// [label, text of a status, title].
const CELLS = [
  ['policy', (status) => orDash(status.policy)],
  ['round', (status) => count(status.rounds), 'Rounds since the first start'],
  ['round ends', () => roundEnd() === null ? DASH :
    `in ${duration(Math.max(0, roundEnd() - nowSeconds()))}`],
  ['last solve', (status) => `${orDash(status.outcome)}${
    typeof status.gap === 'number' ? `, gap ${percent(status.gap, 1)}` : ''}`],
];

function makeStrip() {
  const values = [];
  const cell = (element, label, title, text) => {
    const value = el('span', {class: 'strip-value'}, DASH);
    element.title = title || '';
    element.append(el('span', {class: 'strip-label'}, label), value);
    values.push({value, text});
    return element;
  };
  by('strip').replaceChildren(
      ...CELLS.map(([label, text, title]) => cell(el('div', {class: 'strip-cell'}),
          label, title, text)),
      ...Object.entries(JOB_STATES).map(([letters, state]) => cell(
          el('a', {class: 'strip-cell', href: `#/jobs?state=${letters}`}),
          [shape(state.shape, state.tone), state.word], `Jobs that are ${state.word}`,
          ({jobs}) => count(jobs && jobs[letters]))));
  return values;
}

let strip = null;
function drawStrip() {
  strip = strip || makeStrip();
  if (!context.status) return;
  for (const {value, text} of strip) {
    const now = text(context.status);
    if (value.textContent !== now) value.textContent = now;
  }
}

function drawBanner() {
  const troubles = (context.status && context.status.troubles) || [];
  const lost = link.state === 'lost';
  const now = nowSeconds();
  const away = lost ? relativeText(link.since, now) : '';
  redraw(by('banner'), JSON.stringify([troubles, lost, lost && link.since]), () => [
    lost ? el('p', {class: 'banner lost'}, shape('stop', 'red'),
        el('span', {}, `Disconnected since ${dateTime(link.since)}: what follows ` +
          'is as of then. It connects again by itself.')) : null,
    ...troubles.slice(0, TROUBLES_MAX).map((text) => el('p', {class: 'banner'},
        shape('stop', 'orange'), el('span', {}, text))),
    troubles.length > TROUBLES_MAX ? el('p', {class: 'banner'},
        `and ${plural(troubles.length - TROUBLES_MAX, 'further trouble')}: ` +
        '`gavel status` lists all') : null,
  ]);
  const live = by('live');
  live.dataset.state = link.state;
  live.title = lost ? `since ${dateTime(link.since)}` : '';
  const text = lost ? `disconnected, ${away}` : link.state;
  if (by('live-text').textContent !== text) by('live-text').textContent = text;
}

function drawAll() {
  drawStrip();
  drawBanner();
}

// ---- The theme

function chooseTheme() {
  const select = by('theme');
  select.value = document.documentElement.dataset.theme || '';
  const tell = () => dispatchEvent(new Event('gavel-theme'));
  select.addEventListener('change', () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem('gavel-theme', select.value);
    } catch {
      // It holds until the page is left.
    }
    tell();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', tell);
}

function showRights() {
  by('rights').textContent = mayAct() ? 'may change' : 'read only';
  by('rights').title = mayAct() ?
    'This tab has a token of `gavel dashboard`; closing it gives it up.' :
    '`gavel dashboard` prints a link that may also change things.';
}

function takeStatus(status) {
  if (!status) return;
  context.status = status;
  context.statusAt = nowSeconds();
}

function start() {
  takeToken();
  chooseTheme();
  showRights();
  addEventListener('gavel-rights', () => {
    showRights();
    announce('The token has expired: read only from now on');
    showRoute(true);
  });
  by('skip').addEventListener('click', (event) => {
    event.preventDefault();  // the fragment is the route
    by('main').focus();
  });
  addEventListener('hashchange', () => {
    const before = mayAct();
    takeToken();
    if (mayAct() !== before) location.reload();
    else showRoute(false);
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) page.update();
  });
  showRoute(true);
  drawAll();
  get('api/status').then((status) => {
    if (!context.status) takeStatus(status);
    drawAll();
    page.update();
  }).catch(() => {});  // the events tell that there is no connection
  let lastLook = 0;
  listen((document) => {
    takeStatus(document.status);
    drawAll();
    page.update();
    clearTimeout(lastLook);
    lastLook = setTimeout(() => page.update(), SHARED_MS_MAX);
  }, (state, since) => {
    const back = state === 'live' && link.state === 'lost';
    link = {state, since};
    drawAll();
    if (back) {
      announce('Connected again');
      page.update();
    }
  });
  setInterval(() => {
    drawStrip();
    drawBanner();
    if (page.tick) page.tick();
  }, 1000);
}

start();
