// The charts of the dashboard and of reports: lines and dots over Chart.js, a
// Gantt chart, and a table with cells coloured by value. Each has its numbers
// as a table behind it, and tells series apart by dash and mark as well as by
// colour.
import {el, svg, plainTable, redraw, scroller} from './dom.js';
import {DASH, count, dateTime, duration, isNumber, short, timeOfDay} from
  './format.js';

export const POINTS_MAX = 600;
const SERIES_MAX = 7;
const TABLE_ROWS_MAX = 200;
const BARS_MAX = 2000;
// A longer line has no marks on it.
const POINTS_SHOWN_MAX = 40;
// The least span of a time axis.
const TIME_S_MIN = 60;

// Names of colours in style.css, with the dash and the mark of each series.
const SERIES = [
  {color: '--c-blue', dash: [], point: 'circle'},
  {color: '--c-vermillion', dash: [7, 3], point: 'rect'},
  {color: '--c-green', dash: [2, 3], point: 'triangle'},
  {color: '--c-purple', dash: [9, 3, 2, 3], point: 'rectRot'},
  {color: '--c-orange', dash: [4, 4], point: 'rectRounded'},
  {color: '--c-sky', dash: [12, 3], point: 'star'},
  {color: '--c-ink', dash: [1, 2], point: 'cross'},
];

// The same colour comes back with another dash and mark.
function styleOf(i) {
  const other = SERIES[(i + Math.floor(i / SERIES.length)) % SERIES.length];
  return {...other, color: SERIES[i % SERIES.length].color};
}

// A colour of style.css as the canvas wants it. The probe resolves light-dark().
let probe = null;
function color(name) {
  if (!probe) {
    probe = el('span', {class: 'unseen', 'aria-hidden': 'true'});
    document.body.append(probe);
  }
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// Chart.js comes with the first chart, not with the first paint.
let library = null;
function loadLibrary() {
  library = library || new Promise((resolve, reject) => {
    if (window.Chart) {
      resolve(window.Chart);
      return;
    }
    const script = el('script', {src: 'chart.umd.js'});
    script.onload = () => window.Chart ? resolve(window.Chart) : reject(
        new Error('chart.umd.js defines no Chart'));
    script.onerror = () => reject(new Error('chart.umd.js did not load'));
    document.head.append(script);
  });
  return library;
}

// A series of at most POINTS_MAX points {x, y}. When it is full, every other
// point goes, and from then on only every other one is kept.
export class Series {
  constructor() {
    this.points = [];
    this.stride = 1;
    this.seen = 0;
  }
  add(x, y) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    const last = this.points[this.points.length - 1];
    if (last && x <= last.x) return;
    if (this.seen++ % this.stride !== 0) return;
    this.points.push({x, y});
    if (this.points.length < POINTS_MAX) return;
    this.points = this.points.filter((_, i) => i % 2 === 0);
    this.stride *= 2;
  }
}

// At most POINTS_MAX of the points, evenly; the last one stays.
export function thin(points) {
  if (points.length <= POINTS_MAX) return points;
  const step = Math.ceil(points.length / POINTS_MAX);
  return points.filter((_, i) => i % step === 0 || i === points.length - 1);
}

// Axes that show times (seconds since 1970), or counts.
const AXES = {
  time: {label: (x, step) => timeOfDay(x).slice(0, step < 60 ? 8 : 5),
    full: (x) => dateTime(x)},
  count: {label: (x) => tick(x), full: (x) => count(x)},
};

const tick = (x) => Math.abs(x) >= 1000 ? short(x) :
  String(Number(x.toPrecision(4)));

// Six digits that count, as a table shows them.
const exact = (x) => isNumber(x) ? String(Number(x.toPrecision(6))) : DASH;

// The next value of 1, 2 or 5 times a power of ten.
function roundTo(value, up) {
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 2, 5, 10].map((factor) => factor * power);
  return up ? steps.find((one) => one >= value * 0.9999) :
    steps.findLast((one) => one <= value * 1.0001);
}

// Gives the scale room for the values: on a logarithmic one between round
// numbers above 0, at most six powers of ten.
function fit(scale, values) {
  const high = Math.max(...values);
  const low = Math.min(...values);
  if (scale.type === 'logarithmic') {
    scale.max = high > 0 ? roundTo(high, true) : 1;
    scale.min = roundTo(Math.max(low, scale.max * 1e-6), false);
  } else {
    scale.suggestedMin = low;
    scale.suggestedMax = high;
  }
}

// On a logarithmic axis only 1, 10, 100 have a label; 2 and 5 too where there
// are few.
function logLabel(value, min, max) {
  const digit = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
  return digit === 1 || (max / min < 150 && (digit === 2 || digit === 5)) ?
    tick(value) : '';
}

// The bars of points that have `low` and `high`, over the series.
const ERROR_BARS = {
  id: 'errorBars',
  afterDatasetsDraw({ctx, data, scales: {x, y}}) {
    const cap = 4;
    ctx.save();
    ctx.lineWidth = 1.2;
    for (const {borderColor, data: points} of data.datasets) {
      ctx.strokeStyle = borderColor;
      ctx.beginPath();
      for (const point of points) {
        if (!isNumber(point.low) || !isNumber(point.high)) continue;
        const at = x.getPixelForValue(point.x);
        const ends = [point.low, point.high].map((end) => y.getPixelForValue(end));
        ctx.moveTo(at, ends[0]);
        ctx.lineTo(at, ends[1]);
        for (const end of ends) {
          ctx.moveTo(at - cap, end);
          ctx.lineTo(at + cap, end);
        }
      }
      ctx.stroke();
    }
    ctx.restore();
  },
};

// A tick each 1, 2 or 5 parts of a decade, of a minute, hour or day.
function timeStep(span) {
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
    14400, 21600, 43200, 86400];
  return steps.find((step) => span / step <= 7) || Math.ceil(span / 7 / 86400) *
      86400;
}

// Whole minutes, hours and days of the reader's time zone within the span.
function timeTicks(from, to) {
  const step = timeStep(to - from);
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) {
    ticks.push(t);
  }
  return {step, ticks};
}

// Ticks at round numbers.
function numberTicks(from, to) {
  const step = roundTo((to - from || 1) / 7, true);
  const ticks = [];
  for (let i = Math.ceil(from / step); i * step <= to; ++i) ticks.push(i * step);
  return {step, ticks};
}

export class LineChart {
  // options: {title, captioned, x: 'time' | 'count', xTitle, yTitle, empty,
  // mark: {y, label}, min, max}. With `scales: {x, y}`, options of Chart.js,
  // everything is drawn: the caller has bounded it. `diagonal`: also y = x, up
  // to that value.
  constructor(options) {
    this.options = options;
    this.axis = AXES[options.x || 'time'];
    this.series = [];
    this.canvas = el('canvas');
    this.box = el('div', {class: 'chart-box', role: 'img'}, this.canvas);
    this.legend = el('ul', {class: 'legend'});
    this.blank = el('p', {class: 'empty'}, options.empty || 'Nothing yet.');
    this.rows = scroller(`${options.title}: numbers`);
    this.behind = el('details', {class: 'behind',
      ontoggle: () => this.drawTable()}, el('summary', {}, 'Numbers'), this.rows);
    this.element = el('figure', {class: 'chart'},
        el('figcaption', {class: options.captioned ? null : 'unseen'},
            options.title), this.legend, this.blank, this.box,
        this.behind);
    this.retheme = () => {
      if (!this.chart) return;
      this.chart.destroy();
      this.chart = null;
      this.draw();
    };
    addEventListener('gavel-theme', this.retheme);
    this.show([]);
  }

  // series: [{name, points: [{x, y}]}], the most important first. `style` is
  // the number of its colour, else that of its place; `mark` is 'steps' where
  // each value lasts to the next, 'dots', or 'crosses', which have no name. A
  // point may have a `note`, and the ends `low` and `high` of its error bar.
  show(series) {
    const most = this.options.scales ? series.length : SERIES_MAX;
    this.left = series.slice(most);
    this.series = series.slice(0, most).map((one, i) => ({style: i, ...one,
      points: this.options.scales ? one.points : thin(one.points)}));
    const some = this.series.some((one) => one.points.length > 0);
    this.blank.hidden = some;
    this.box.hidden = !some;
    this.behind.hidden = !some;
    this.legend.hidden = !some || (series.length < 2 && !this.options.mark &&
        !this.options.scales);
    this.drawLegend();
    this.drawTable();
    this.describe();
    if (some) this.draw();
  }

  describe() {
    const words = this.series.filter((one) => one.name).map(({name, points}) => {
      if (points.length === 0) return `${name}: nothing`;
      const last = points[points.length - 1];
      return `${name}: from ${short(points[0].y)} to ${short(last.y)}`;
    });
    this.box.setAttribute('aria-label',
        `${this.options.title}. ${words.join('; ')}. The numbers follow.`);
  }

  drawLegend() {
    const named = this.series.filter((one) => one.name)
        .map(({name, style}) => ({name, style}));
    redraw(this.legend, JSON.stringify([named, this.left.length]), () => [
      ...named.map(({name, style}) => el('li', {title: name}, svg('svg', {
        viewBox: '0 0 28 10', class: `line line-${style % SERIES.length}`,
        'aria-hidden': 'true'}, svg('line', {x1: 1, x2: 27, y1: 5, y2: 5,
        'stroke-dasharray': styleOf(style).dash.join(' ')})), name)),
      this.options.mark ? el('li', {}, svg('svg', {viewBox: '0 0 28 10',
        class: 'line line-mark', 'aria-hidden': 'true'},
      svg('line', {x1: 1, x2: 27, y1: 5, y2: 5})), this.options.mark.label) : null,
      this.left.length ? el('li', {}, `and ${this.left.length} more`) : null,
    ]);
  }

  drawTable() {
    if (!this.behind.open) return;
    if (this.options.scales) {
      redraw(this.rows, JSON.stringify(this.series), () => this.everyPoint());
      return;
    }
    const at = new Map();
    this.series.forEach(({points}, i) => points.forEach(({x, y}) => {
      if (!at.has(x)) at.set(x, []);
      at.get(x)[i] = y;
    }));
    const xs = [...at.keys()].sort((a, b) => b - a).slice(0, TABLE_ROWS_MAX);
    const signature = `${xs[0]}/${xs.length}/${this.series.length}`;
    redraw(this.rows, signature, () => plainTable(this.options.title,
        [{label: this.options.xTitle || 'time'}, ...this.series.map((one) =>
          ({label: one.name, number: true}))],
        xs.map((x) => [this.axis.full(x), ...this.series.map((_, i) =>
          at.get(x)[i] === undefined ? DASH : short(at.get(x)[i]))])));
  }

  // A row for each point: the series of a report seldom share values of x.
  everyPoint() {
    const {title, xTitle, yTitle} = this.options;
    const points = this.series.flatMap((one) => one.points.map((point) =>
      ({...point, name: one.name})));
    const columns = [
      [{label: 'Series'}, 'name'], [{label: xTitle, number: true}, 'x'],
      [{label: yTitle, number: true}, 'y'], [{label: 'Least', number: true}, 'low'],
      [{label: 'Greatest', number: true}, 'high'], [{label: 'Note'}, 'note'],
    ].filter(([, key]) => points.some((point) => point[key] || point[key] === 0));
    return plainTable(title, columns.map(([column]) => column), points.map((point) =>
      columns.map(([{number}, key]) => number ? exact(point[key]) : point[key] || DASH)));
  }

  async draw() {
    this.wanted = true;
    if (this.starting) return;
    if (!this.chart) {
      this.starting = true;
      try {
        const Chart = await loadLibrary();
        if (this.ended) return;
        this.chart = new Chart(this.canvas, this.config());
      } catch (error) {
        this.box.hidden = true;
        this.blank.hidden = false;
        this.blank.textContent = `No drawing (${error.message}); the numbers ` +
            'are below.';
        this.behind.open = true;
        return;
      } finally {
        this.starting = false;
      }
    }
    this.chart.data.datasets = this.datasets();
    this.setScales();
    this.chart.update('none');
  }

  datasets() {
    const sets = this.series.map(({name, points, style, mark}) => {
      const {color: hue, dash, point} = styleOf(style);
      const crosses = mark === 'crosses';
      const alone = crosses || mark === 'dots';
      return {
        label: name,
        data: points,
        borderColor: color(hue),
        backgroundColor: color(hue),
        borderDash: dash,
        showLine: !alone,
        stepped: mark === 'steps',
        pointStyle: crosses ? 'crossRot' : point,
        pointBorderWidth: crosses ? 2 : 1,
        pointRadius: crosses ? 5 : alone || points.length <= POINTS_SHOWN_MAX ? 2.5 : 0,
        pointHitRadius: 8,
        borderWidth: mark === 'steps' ? 1.4 : 2,
        tension: 0,
        clip: 8,
      };
    });
    const {mark, diagonal} = this.options;
    const thinLine = (label, from, to) => sets.push({label, borderWidth: 1,
      borderColor: color('--muted'), pointRadius: 0, pointHitRadius: 0,
      data: [from, to]});
    if (diagonal) thinLine('', {x: 0, y: 0}, {x: diagonal, y: diagonal});
    const xs = this.series.flatMap(({points}) => points.length ?
      [points[0].x, points[points.length - 1].x] : []);
    if (mark && xs.length) {
      thinLine(mark.label, {x: Math.min(...xs), y: mark.y},
          {x: Math.max(...xs), y: mark.y});
    }
    return sets;
  }

  setScales() {
    const {x, y} = this.chart.options.scales;
    const points = this.series.flatMap((one) => one.points);
    if (this.options.scales) {
      fit(x, points.map((point) => point.x).filter(isNumber));
      fit(y, points.flatMap(({y: at, low, high}) => [at, low, high]).filter(isNumber));
      return;
    }
    const ys = points.map((point) => point.y);
    const low = Math.min(...ys);
    const high = Math.max(...ys);
    // A line that is level is in the middle, not magnified.
    const room = high > low ? 0 : Math.abs(high) / 4 || 1;
    y.suggestedMin = this.options.min === undefined ? low - room : undefined;
    y.suggestedMax = Math.max(high + room, this.options.max ?? -Infinity);
    if (this.axis !== AXES.time) return;
    const xs = points.map((point) => point.x);
    x.max = Math.max(...xs);
    x.min = Math.min(...xs, x.max - TIME_S_MIN);
  }

  config() {
    const font = {family: getComputedStyle(document.body).fontFamily, size: 11};
    const grid = {color: color('--line'), borderColor: color('--line')};
    const ticks = {color: color('--muted'), font, maxRotation: 0,
      autoSkipPadding: 16};
    const name = (text) => ({display: Boolean(text), text, font,
      color: color('--muted')});
    const {axis, options} = this;
    const own = (scale) => scale && {...scale, ...scale.type === 'logarithmic' ?
      {ticks: {...ticks, autoSkip: false, callback(value) {
        return logLabel(value, this.min, this.max);
      }}} : {}};
    const dots = this.series.some((one) => one.mark === 'dots');
    return {
      type: 'line',
      data: {datasets: []},
      plugins: [ERROR_BARS],
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        parsing: false,
        normalized: true,
        interaction: {mode: 'nearest', axis: dots ? 'xy' : 'x', intersect: false},
        scales: {
          x: {type: 'linear', grid: {...grid, display: Boolean(options.scales)},
            title: name(options.xTitle),
            afterBuildTicks: (scale) => {
              if (axis !== AXES.time) return;
              const {step, ticks: at} = timeTicks(scale.min, scale.max);
              this.step = step;
              scale.ticks = at.map((value) => ({value}));
            },
            ticks: {...ticks, callback: (x) => axis.label(x, this.step)},
            ...own(options.scales?.x)},
          y: {grid, title: name(options.yTitle), min: options.min,
            ticks: {...ticks, maxTicksLimit: 6, callback: (y) => tick(y)},
            ...own(options.scales?.y)},
        },
        plugins: {
          legend: {display: false},
          tooltip: {animation: false, callbacks: {
            title: (items) => items.length ? axis.full(items[0].parsed.x) : '',
            label: (item) => item.raw.note ||
                `${item.dataset.label}: ${short(item.parsed.y)}`,
          }},
        },
      },
    };
  }

  end() {
    this.ended = true;
    removeEventListener('gavel-theme', this.retheme);
    if (this.chart) this.chart.destroy();
    this.chart = null;
  }
}

// ---- Gantt

// The height of a lane; of one of many.
const LANE_PX = 24;
const LOW_LANE_PX = 14;
const LANES_MAX = 40;
const LABEL_PX = 230;
const WIDTH_PX = 1340;
const AXIS_PX = 22;
// Narrower ones could not be seen.
const BAR_PX_MIN = 2;

// Bars on lanes over time. lanes: [{name, bars: [{from_s, to_s, tone, letter,
// title, open}]}]; moves: [{at_s, from, to, title}] and pauses: [{lane, from_s,
// to_s, title}], with indices of lanes. `letter` tells the tone without colour.
// options: {title, captioned, unit}; a `unit` other than seconds since 1970, by
// which the axis is named.
export class Gantt {
  constructor(options) {
    this.options = options;
    this.picture = el('div', {class: 'gantt', tabindex: 0, role: 'region',
      'aria-label': `${options.title}, drawn`});
    this.legend = el('ul', {class: 'legend'});
    this.rows = scroller(options.title);
    this.behind = el('details', {class: 'behind'},
        el('summary', {}, 'As a table'), this.rows);
    this.element = el('figure', {class: 'chart'}, el('figcaption',
        {class: options.captioned ? null : 'unseen'}, options.title), this.legend,
    this.picture, this.behind);
  }

  show(picture) {
    const {lanes, moves, pauses, from_s, to_s, legend, table} = picture;
    const signature = JSON.stringify([lanes, moves, pauses, from_s,
      Math.round(to_s)]);
    redraw(this.picture, signature, () => this.draw(picture));
    redraw(this.legend, JSON.stringify(legend), () => legend.map((one) =>
      el('li', {}, el('span', {class: `key tone-${one.tone}`}, one.letter),
          one.name)));
    redraw(this.rows, signature, () => table());
  }

  draw({lanes, moves, pauses, from_s, to_s}) {
    const {unit} = this.options;
    const span = unit ? to_s - from_s || 1 : Math.max(1, to_s - from_s);
    const lanePx = unit && lanes.length > LANES_MAX ? LOW_LANE_PX : LANE_PX;
    const x = (t) => LABEL_PX + (WIDTH_PX - LABEL_PX - 8) *
        (Math.max(from_s, Math.min(to_s, t)) - from_s) / span;
    const height = lanes.length * lanePx + AXIS_PX;
    const root = svg('svg', {viewBox: `0 0 ${WIDTH_PX} ${height}`, role: 'img',
      'aria-label': `${lanes.length} rows over ${unit ? `${exact(span)} ${unit}` :
        duration(span)}; the table below has the same`});
    const {step, ticks} = unit ? numberTicks(from_s, to_s) : timeTicks(from_s, to_s);
    for (const t of ticks) {
      root.append(svg('line', {class: 'grid', x1: x(t), x2: x(t), y1: 0,
        y2: height - AXIS_PX}));
      const at = x(t);
      root.append(svg('text', {class: 'tick', x: at, y: height - 6,
        'text-anchor': at > WIDTH_PX - 40 ? 'end' : at < LABEL_PX + 30 ?
          'start' : 'middle'}, unit ? `${tick(t)} ${unit}` :
          AXES.time.label(t, step)));
    }
    let drawn = 0;
    lanes.forEach((lane, i) => {
      const top = i * lanePx;
      root.append(svg('text', {class: 'lane', x: LABEL_PX - 8, y: top + lanePx / 2 + 4,
        'text-anchor': 'end'}, lane.name.length > 34 ?
        `${lane.name.slice(0, 16)}…${lane.name.slice(-16)}` : lane.name,
      svg('title', {}, lane.name)));
      root.append(svg('line', {class: 'rule', x1: LABEL_PX, x2: WIDTH_PX,
        y1: top + lanePx, y2: top + lanePx}));
      for (const bar of lane.bars) {
        if (++drawn > BARS_MAX) break;
        const left = x(bar.from_s);
        const width = Math.max(BAR_PX_MIN, x(bar.to_s) - left - 1);
        root.append(svg('g', {class: `bar tone-${bar.tone}${
          bar.open ? ' open' : ''}`}, svg('title', {}, bar.title),
        svg('rect', {x: left, y: top + 3, width, height: lanePx - 6, rx: 2}),
        width > 7 + 7 * bar.letter.length ? svg('text', {x: left + 5,
          y: top + lanePx / 2 + 4}, bar.letter) : null));
      }
    });
    for (const pause of pauses) {
      const y = pause.lane * lanePx + lanePx / 2;
      root.append(svg('g', {class: 'pause'}, svg('title', {}, pause.title),
          svg('line', {x1: x(pause.from_s), x2: x(pause.to_s), y1: y, y2: y})));
    }
    for (const move of moves) {
      const at = x(move.at_s);
      root.append(svg('g', {class: 'move'}, svg('title', {}, move.title),
          svg('path', {d: `M${at} ${move.from * lanePx + lanePx / 2}V${
            move.to * lanePx + lanePx / 2}`}),
          svg('circle', {cx: at, cy: move.to * lanePx + lanePx / 2, r: 3})));
    }
    return root;
  }
}

// ---- Values from 0 to 1 by colour

// A table with a row and a column for each name; the cell's colour is the
// stronger the greater its value is. `none` says what no value means.
export function heatTable({title, names, values, none}) {
  const cell = (value, row, column) => {
    const td = el('td', {class: 'number', title: `${row} with ${column}: ${
      isNumber(value) ? exact(value) : none}`}, isNumber(value) ? value.toFixed(2) :
      DASH);
    if (isNumber(value)) td.style.setProperty('--part', value);
    else td.classList.add('none');
    return td;
  };
  return el('figure', {class: 'chart'}, el('figcaption', {}, title),
      scroller(title, el('table', {class: 'heat-map'},
          el('thead', {}, el('tr', {}, el('td'), names.map((name) =>
            el('th', {scope: 'col'}, el('span', {}, name))))),
          el('tbody', {}, names.map((row, i) => el('tr', {},
              el('th', {scope: 'row'}, row), names.map((column, j) =>
                cell(values[i * names.length + j], row, column))))))),
      el('p', {class: 'remark'}, `${DASH}: ${none}`));
}
