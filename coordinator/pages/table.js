// A table of any number of rows, of which only those in sight are in the
// document: ten thousand jobs scroll and sort like ten.
import {el, redraw} from './dom.js';
import {count} from './format.js';

const ROW_PX = 30;
const SPARE_ROWS = 8;
const VISIBLE_MIN = 12;

// A column: {key, label, title, width (rem), grow, spare, number, value(row),
// text(row), cell(row), sign(row), hint(row)}. A spare one is not shown in narrow
// windows (style.css). One that grows takes the width that is left. `value` is
// what rows are sorted by (null comes last),
// `text` what a cell says, `cell` makes nodes instead, for which `sign` tells
// when they are others.
const classOf = (column) => [column.number && 'number', column.spare && 'spare',
  column.class].filter(Boolean).join(' ') || null;

export class WindowTable {
  // options: {caption, columns, key(row), sort, onSort(sort), empty, height}
  // sort: "KEY" or "-KEY".
  constructor(options) {
    Object.assign(this, options);
    this.rows = [];
    this.shown = [];
    this.lines = new Map();  // by key of the row: its <tr>
    this.active = 0;         // row that Tab reaches; the arrows move it
    this.build();
  }

  build() {
    this.headers = this.columns.map((column) => {
      const button = column.value ?
        el('button', {type: 'button', class: 'sorter', title: column.title,
          onclick: () => this.sortBy(column)}, column.label,
        el('span', {class: 'arrow', 'aria-hidden': 'true'})) :
        el('span', {title: column.title}, column.label);
      return el('th', {scope: 'col', class: classOf(column)}, button);
    });
    const cols = this.columns.map((column) => {
      const col = el('col', {class: column.spare ? 'spare' : null});
      if (!column.grow) col.style.width = `${column.width}rem`;
      return col;
    });
    this.above = el('tr', {class: 'spacer', 'aria-hidden': 'true'}, el('td'));
    this.below = el('tr', {class: 'spacer', 'aria-hidden': 'true'}, el('td'));
    this.body = el('tbody', {onkeydown: (event) => this.onKey(event)});
    this.table = el('table', {class: 'window'},
        el('caption', {class: 'unseen'}, this.caption),
        el('colgroup', {}, cols),
        el('thead', {}, el('tr', {'aria-rowindex': 1}, this.headers)),
        this.body);
    const width = (columns) => `${columns.reduce((sum, column) => sum +
        column.width, 0)}rem`;
    this.table.style.setProperty('--width', width(this.columns));
    this.table.style.setProperty('--width-narrow',
        width(this.columns.filter((column) => !column.spare)));
    this.blank = el('p', {class: 'empty', hidden: true});
    this.element = el('div', {class: `scroller window-scroller ${
      this.height || ''}`, tabindex: 0, role: 'region',
    'aria-label': this.caption, onscroll: () => this.schedule()}, this.table);
    this.body.append(this.above, this.below);
    this.element.append(this.blank);
    this.resized = new ResizeObserver(() => this.schedule());
    this.resized.observe(this.element);
    this.showSort();
  }

  end() {
    this.resized.disconnect();
    cancelAnimationFrame(this.frame);
    this.lines.clear();
  }

  setRows(rows, blank) {
    this.rows = rows;
    this.blank.textContent = rows.length === 0 ? blank || this.empty : '';
    this.blank.hidden = rows.length > 0;
    this.order();
    this.draw();
  }

  sortBy(column) {
    const falls = this.sort === column.key ||
        (this.sort !== `-${column.key}` && column.number && column.key !== 'id');
    this.sort = (falls ? '-' : '') + column.key;
    this.showSort();
    this.order();
    this.element.scrollTop = 0;
    this.active = 0;
    this.draw();
    if (this.onSort) this.onSort(this.sort);
  }

  showSort() {
    const [key, falls] = sortKey(this.sort);
    this.columns.forEach((column, i) => {
      const header = this.headers[i];
      if (column.key === key) {
        header.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
      } else {
        header.removeAttribute('aria-sort');
      }
    });
  }

  order() {
    const [key, falls] = sortKey(this.sort);
    const column = this.columns.find((c) => c.key === key);
    if (!column || !column.value) {
      this.shown = this.rows;
      return;
    }
    // The values are computed once for each row, not for each comparison.
    const pairs = this.rows.map((row) => [column.value(row), row]);
    const sign = falls ? -1 : 1;
    pairs.sort(([a], [b]) => {
      const noA = a === null || a === undefined || a === '';
      const noB = b === null || b === undefined || b === '';
      if (noA || noB) return noA - noB;
      return (a < b ? -1 : a > b ? 1 : 0) * sign;
    });
    this.shown = pairs.map(([, row]) => row);
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const total = this.shown.length;
    this.table.setAttribute('aria-rowcount', total + 1);
    this.active = Math.max(0, Math.min(this.active, total - 1));
    const height = Math.max(this.element.clientHeight, VISIBLE_MIN * ROW_PX);
    const first = Math.max(0, Math.min(
        Math.floor(this.element.scrollTop / ROW_PX) - SPARE_ROWS, total - 1));
    const last = Math.min(total,
        first + Math.ceil(height / ROW_PX) + 2 * SPARE_ROWS);
    const lines = new Map();
    let before = this.above;
    for (let i = first; i < last; ++i) {
      const row = this.shown[i];
      const key = this.key(row);
      const line = this.lines.get(key) || this.makeLine();
      lines.set(key, line);
      this.fillLine(line, row, i);
      if (before.nextSibling !== line) before.after(line);
      before = line;
    }
    for (const [key, line] of this.lines) {
      if (!lines.has(key)) line.remove();
    }
    this.lines = lines;
    this.above.firstChild.style.height = `${first * ROW_PX}px`;
    this.below.firstChild.style.height = `${(total - last) * ROW_PX}px`;
    this.above.hidden = first === 0;
    this.below.hidden = last >= total;
  }

  makeLine() {
    return el('tr', {}, this.columns.map((column, i) =>
      el(i === 0 ? 'th' : 'td', {scope: i === 0 ? 'row' : null,
        class: classOf(column)})));
  }

  fillLine(line, row, index) {
    line.setAttribute('aria-rowindex', index + 2);
    line.dataset.index = index;
    line.classList.toggle('odd', index % 2 === 1);
    this.columns.forEach((column, i) => {
      const cell = line.children[i];
      const text = column.text ? column.text(row) : '';
      const signature = column.sign ? column.sign(row) : text;
      redraw(cell, signature, () => column.cell ? column.cell(row) : text);
      const title = column.hint ? column.hint(row) : '';
      if (cell.title !== title) cell.title = title;
    });
    // One row is in the order of Tab; the arrows lead to the others.
    for (const one of line.querySelectorAll('a, button')) {
      one.tabIndex = index === this.active ? 0 : -1;
    }
  }

  onKey(event) {
    const line = event.target.closest('tr[data-index]');
    if (!line || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 2);
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity};
    if (!(event.key in steps)) return;
    event.preventDefault();
    const to = Number(line.dataset.index) + steps[event.key];
    this.active = Math.max(0, Math.min(this.shown.length - 1, to));
    this.reveal(this.active);
    this.draw();
    const now = this.lines.get(this.key(this.shown[this.active]));
    const link = now && now.querySelector('a, button');
    if (link) link.focus({preventScroll: true});
  }

  reveal(index) {
    const head = ROW_PX + 4;
    const top = index * ROW_PX;
    const view = this.element;
    if (top < view.scrollTop) view.scrollTop = top;
    const low = top + ROW_PX + head - view.clientHeight;
    if (low > view.scrollTop) view.scrollTop = low;
  }
}

const sortKey = (sort) => sort && sort.startsWith('-') ?
  [sort.slice(1), true] : [sort || '', false];

// "38 of 10,000 jobs".
export const amount = (shown, all, noun) => shown === all ?
  `${count(all)} ${noun}` : `${count(shown)} of ${count(all)} ${noun}`;

