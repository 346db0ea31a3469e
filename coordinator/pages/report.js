// A report, built from the data in its file: sections of charts and tables.
import {el, plainTable, scroller} from './dom.js';
import {Gantt, LineChart, heatTable} from './charts.js';

const TONES = 6;  // of style.css: tone-t0 and so on
const BAD = ['cannot_drain', 'error', 'timeout'];

// The options of Chart.js for an axis of the data.
const scaleOf = ({log, from_zero: fromZero, min, max}) => ({
  ...log ? {type: 'logarithmic'} : {beginAtZero: fromZero},
  ...min === undefined ? {} : {min, max}});

function drawLines({title, x, y, diagonal, series}) {
  const chart = new LineChart({title, captioned: true, x: 'count', xTitle: x.label,
    yTitle: y.label, scales: {x: scaleOf(x), y: scaleOf(y)},
    diagonal: diagonal ? x.max : 0, empty: 'Nothing to draw.'});
  chart.show(series.map(({name, color, mark, points}) => ({name, style: color, mark,
    points: points.map(([at, value, note, low, high]) =>
      ({x: at, y: value, note, low, high}))})));
  return chart.element;
}

function drawBars({title, unit, to, rows, names, bars}) {
  const tone = (color) => `t${color % TONES}`;
  const letter = (color) => names.length ? names[color][0] : String(color);
  const chart = new Gantt({title, captioned: true, unit});
  const lanes = rows.map((name) => ({name, bars: []}));
  for (const [row, from, until, color, note] of bars) {
    lanes[row].bars.push({from_s: from, to_s: until, tone: tone(color),
      letter: letter(color), title: note});
  }
  chart.show({lanes, moves: [], pauses: [], from_s: 0, to_s: to,
    legend: names.map((name, i) => ({name, tone: tone(i), letter: letter(i)})),
    table: () => plainTable(title, [{label: 'Row'}, {label: `From (${unit})`, number: true},
      {label: `To (${unit})`, number: true}, {label: 'What'}],
    bars.map(([row, from, until, , note]) => [rows[row], String(from), String(until),
      note]))});
  return chart.element;
}

const DRAW = {lines: drawLines, bars: drawBars, map: heatTable};

// The number that the text begins with, else the text.
const valueOf = (text) => Number.isNaN(parseFloat(text)) ? text : parseFloat(text);

// Numbers before texts.
function compare(a, b) {
  if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

// A click on a title sorts by its column; another one, the other way.
function sortedTable(caption, {titles, rows}) {
  const sort = (column) => {
    const head = table.tHead.rows[0].cells;
    const up = head[column].ariaSort !== 'ascending';
    for (const one of head) one.removeAttribute('aria-sort');
    head[column].ariaSort = up ? 'ascending' : 'descending';
    const value = (row) => valueOf(row.cells[column].textContent);
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) *
      compare(value(a), value(b))));
  };
  const table = plainTable(caption, titles.map((title, i) => ({
    number: rows.every((row) => /^(-?\d|-$)/.test(row[i])),
    label: el('button', {type: 'button', class: 'sorter', onclick: () => sort(i)},
        title, el('span', {class: 'arrow', 'aria-hidden': 'true'}))})),
  rows.map((row) => row.map((text) => BAD.includes(text) ?
    el('span', {class: 'bad'}, text) : text)));
  return scroller(`${caption}: table`, table);
}

function drawSection({id, title, text, csv, notes, figures, table}) {
  const link = csv === null ? ' Its data: gavel report --csv.' : csv && [' ',
    el('a', {download: `${id}.csv`,
      href: `data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`}, 'CSV')];
  return el('section', {class: 'panel', id, 'aria-labelledby': `h-${id}`},
      el('h2', {id: `h-${id}`}, title), el('p', {class: 'remark'}, text, link),
      notes.map((note) => el('p', {class: 'note'}, note)),
      el('div', {class: 'figures'}, figures.map((figure) =>
        DRAW[figure.kind](figure))),
      table.titles.length ? sortedTable(title, table) : null);
}

const report = JSON.parse(document.getElementById('report').textContent);
document.getElementById('main').append(el('h1', {}, report.title),
    el('p', {class: 'remark'}, report.summary),
    el('nav', {class: 'filters', 'aria-label': 'Sections'},
        report.sections.map(({id, title}) => el('a', {href: `#${id}`}, title))),
    ...report.sections.map(drawSection));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
  dispatchEvent(new Event('gavel-theme')));
document.getElementById(location.hash.slice(1))?.scrollIntoView();
