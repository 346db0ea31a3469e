// States of jobs and accelerators: each has a word, a shape and a colour, so
// that none is told by its colour alone. The colours are Okabe and Ito's.
import {el, svg} from './dom.js';

// Paths in a box of 12 x 12.
const SHAPES = {
  play: 'M3 1.5v9l7.5-4.5z',
  ring: 'M6 1a5 5 0 1 0 0 10A5 5 0 0 0 6 1zm0 2a3 3 0 1 1 0 6 3 3 0 0 1 0-6z',
  pause: 'M2.5 1.5h2.6v9H2.5zM6.9 1.5h2.6v9H6.9z',
  down: 'M1.5 3h9L6 10.5z',
  check: 'M1 6.4 2.6 4.8 4.8 7 9.6 1.8 11.2 3.4 4.8 10.2z',
  stop: 'M6 .6 11.6 11H.4zM5.3 4.4v3h1.4v-3zm0 3.9v1.3h1.4V8.3z',
  cross: 'M2.3 1 6 4.7 9.7 1 11 2.3 7.3 6 11 9.7 9.7 11 6 7.3 2.3 11 1 9.7 4.7 6 1 2.3z',
  square: 'M1.5 1.5h9v9h-9z',
  frame: 'M1.5 1.5h9v9h-9zm1.6 1.6v5.8h5.8V3.1z',
  half: 'M1.5 1.5h9v9h-9zm1.6 1.6v5.8L8.9 3.1z',
  dash: 'M1 4.8h10v2.4H1z',
};

export const JOB_STATES = {
  R: {word: 'running', shape: 'play', tone: 'green'},
  CG: {word: 'stopping', shape: 'down', tone: 'orange'},
  S: {word: 'paused', shape: 'pause', tone: 'sky'},
  PD: {word: 'waiting', shape: 'ring', tone: 'grey'},
  F: {word: 'held', shape: 'stop', tone: 'red'},
  CD: {word: 'finished', shape: 'check', tone: 'blue'},
  CA: {word: 'cancelled', shape: 'cross', tone: 'grey'},
};

const ACCELERATOR_STATES = {
  allocated: {shape: 'square', tone: 'green', letter: ''},
  idle: {shape: 'frame', tone: 'grey', letter: ''},
  starting: {shape: 'play', tone: 'sky', letter: 's'},
  draining: {shape: 'half', tone: 'orange', letter: 'd'},
  drained: {shape: 'dash', tone: 'orange', letter: 'D'},
  mixed: {shape: 'half', tone: 'green', letter: ''},
  hung: {shape: 'stop', tone: 'red', letter: 'h'},
  quarantined: {shape: 'stop', tone: 'red', letter: 'q'},
  lost: {shape: 'cross', tone: 'red', letter: 'x'},
  unreachable: {shape: 'cross', tone: 'red', letter: '?'},
  down: {shape: 'cross', tone: 'red', letter: 'x'},
};

export const jobState = (letters) => JOB_STATES[letters] ||
    {word: letters || 'unknown', shape: 'ring', tone: 'grey'};
export const acceleratorState = (word) => ({word,
  ...(ACCELERATOR_STATES[word] || {shape: 'ring', tone: 'grey', letter: '?'})});

export const shape = (name, tone) => svg('svg', {class: `shape tone-${tone}`,
  viewBox: '0 0 12 12', 'aria-hidden': 'true'},
svg('path', {d: SHAPES[name] || SHAPES.ring, 'fill-rule': 'evenodd'}));

const badge = (state, title) => el('span', {class: 'state', title},
    shape(state.shape, state.tone), state.word);
export const jobBadge = (letters) =>
  badge(jobState(letters), `${letters}: ${jobState(letters).word}`);
export const acceleratorBadge = (word) => badge(acceleratorState(word));

// Whether an operator may still do something to a job in this state.
export const isOver = (letters) => letters === 'CD' || letters === 'CA';
