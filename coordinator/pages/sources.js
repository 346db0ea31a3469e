// Where a throughput is known from: a letter and a colour.
import {el} from './dom.js';

const SOURCES = {
  measured: {letter: 'M', tone: 'green', word: 'measured'},
  given: {letter: 'G', tone: 'sky', word: 'given in the job file'},
  guessed: {letter: 'E', tone: 'orange', word: 'estimated'},
};
const sourceOf = (source) => SOURCES[source] || {letter: '?', tone: 'grey',
  word: source || 'unknown'};

export function sourceKey(source, named) {
  const {letter, tone, word} = sourceOf(source);
  return el('span', {class: 'source', title: word}, el('span',
      {class: `key tone-${tone}`, 'aria-hidden': named ? 'true' : null}, letter),
  named ? ` ${word}` : null);
}

export const sourceTone = (source) => sourceOf(source).tone;

export const sourceLegend = () => el('ul', {class: 'legend'},
    Object.keys(SOURCES).map((source) => el('li', {}, sourceKey(source, true))));
