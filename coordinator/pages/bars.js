// Small drawings within a table or a line of text, as SVG with a text that says
// the same.
import {el, svg} from './dom.js';
import {percent, isNumber, DASH} from './format.js';

const WIDTH = 52;

// A bar of `got`, with a mark at `target`, both parts of 1, and the numbers.
export function shareBar(target, got) {
  if (!isNumber(target) && !isNumber(got)) return DASH;
  const x = (part) => Math.max(0, Math.min(1, part || 0)) * WIDTH;
  return el('span', {class: 'share', title: `target ${percent(target)}, received ${
    percent(got)}`},
  svg('svg', {viewBox: `0 0 ${WIDTH} 12`, class: 'bar-svg', 'aria-hidden': 'true'},
      svg('rect', {class: 'bar-back', width: WIDTH, y: 3, height: 6, rx: 1}),
      svg('rect', {class: 'bar-fill', width: x(got), y: 3, height: 6, rx: 1}),
      svg('rect', {class: 'bar-mark', x: Math.min(WIDTH - 2, Math.max(0,
          x(target) - 1)), width: 2, y: 0, height: 12})),
  el('span', {class: 'pair-text'}, `${percent(target)} / ${percent(got)}`));
}

// A bar of a part of 1, with text behind it.
export function partBar(part, text) {
  if (!isNumber(part)) return text || DASH;
  return el('span', {class: 'share'},
      svg('svg', {viewBox: `0 0 ${WIDTH} 12`, class: 'bar-svg',
        preserveAspectRatio: 'none',
        'aria-hidden': 'true'},
      svg('rect', {class: 'bar-back', width: WIDTH, y: 3, height: 6, rx: 1}),
      svg('rect', {class: 'bar-fill', y: 3, height: 6, rx: 1,
        width: Math.max(0, Math.min(1, part)) * WIDTH})),
      text ? el('span', {class: 'share-text'}, text) : null);
}

// A ratio on a bar from 0 to 2 with a mark at 1, and `text`.
export function ratioBar(ratio, text) {
  if (!isNumber(ratio)) return DASH;
  return el('span', {class: 'share'},
      svg('svg', {viewBox: `0 0 ${WIDTH} 12`, class: 'bar-svg',
        'aria-hidden': 'true'},
      svg('rect', {class: 'bar-back', width: WIDTH, y: 3, height: 6, rx: 1}),
      svg('rect', {class: 'bar-fill', y: 3, height: 6, rx: 1,
        width: Math.max(0, Math.min(1, ratio / 2)) * WIDTH}),
      svg('rect', {class: 'bar-mark', x: WIDTH / 2 - 1, width: 2, height: 12})),
      el('span', {class: 'ratio-text'}, text));
}
