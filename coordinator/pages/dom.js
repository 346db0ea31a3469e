// Elements from data. Text always becomes a text node: names of jobs and lines
// of logs come from strangers.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return element;
}

// el('a', {href: '#/jobs', class: 'x'}, 'text', element, ...)
export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Replaces what is in `element` only where `signature` is another than at the
// last call: a reader's selection and focus stay where nothing has changed.
const signatures = new WeakMap();
export function redraw(element, signature, make) {
  if (signatures.get(element) === signature) return;
  signatures.set(element, signature);
  const children = make();
  element.replaceChildren(...[children].flat().filter((c) => c !== null));
}

// A section with a heading and, beside it, a remark.
export function panel(title, remark, ...children) {
  const id = `h-${title.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return el('section', {class: 'panel', 'aria-labelledby': id},
      el('div', {class: 'panel-head'}, el('h2', {id}, title),
          remark ? el('p', {class: 'remark'}, remark) : null),
      ...children);
}

// A plain table for few rows. columns: [{label, number, long}]; cells: text or
// nodes. A long column wraps its lines.
export function plainTable(caption, columns, rows, attributes) {
  const kind = ({number, long}) => number ? 'number' : long ? 'long' : null;
  return el('table', {class: 'plain', ...attributes},
      el('caption', {class: 'unseen'}, caption),
      el('thead', {}, el('tr', {}, columns.map((column) =>
        el('th', {scope: 'col', class: kind(column),
          title: column.title}, column.label)))),
      el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((cell, i) =>
        el(i === 0 ? 'th' : 'td',
            {scope: i === 0 ? 'row' : null, class: kind(columns[i])}, cell))))));
}

// A description list of facts: [[term, text or node, title]].
export function facts(entries) {
  return el('dl', {class: 'facts'}, entries.map(([term, value, title]) =>
    el('div', {title}, el('dt', {}, term), el('dd', {}, value))));
}

// An area that scrolls, which a keyboard can scroll too. It stays while what is
// in it is drawn again, and with it the place and the focus.
export function scroller(label, ...children) {
  return el('div', {class: 'scroller', tabindex: 0, role: 'region',
    'aria-label': label}, ...children);
}
