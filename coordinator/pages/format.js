// Numbers and times as text. What is not known is a dash, never an error.
import {el} from './dom.js';

export const DASH = '–';

export const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);

const grouped = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
// 1,204,000
export const count = (x) => isNumber(x) ? grouped.format(x) : DASH;

const SCALES = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
// Three digits that count: 12.3, 0.0412, 1.20M.
export function short(x) {
  if (!isNumber(x)) return DASH;
  const size = Math.abs(x);
  if (size === 0) return '0';
  for (const [scale, letter] of SCALES) {
    if (size >= scale * 0.9995) return (x / scale).toPrecision(3) + letter;
  }
  return size < 1e-4 ? x.toExponential(2) : x.toPrecision(3);
}

export const percent = (x, digits = 0) =>
  isNumber(x) ? `${(100 * x).toFixed(digits)} %` : DASH;

export const fixed = (x, digits = 2) => isNumber(x) ? x.toFixed(digits) : DASH;

export function bytes(x) {
  if (!isNumber(x)) return DASH;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (x >= 1024 && i < units.length - 1) {
    x /= 1024;
    ++i;
  }
  return `${i === 0 || x >= 100 ? x.toFixed(0) : x.toPrecision(3)} ${units[i]}`;
}

// The two largest units, of a small number: "3 d 4 h", "6 min 5 s", "42 min".
const TWO_UNITS_MAX = 10;
export function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  const s = Math.abs(seconds);
  if (s < 10) return `${s.toFixed(s < 1 && s > 0 ? 1 : 0)} s`;
  const parts = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = parts.findIndex(([, unit]) => Math.round(s) >= unit);
  const [name, unit] = parts[first];
  const whole = Math.floor(Math.round(s) / unit);
  const next = parts[first + 1];
  const rest = next && whole < TWO_UNITS_MAX ?
    Math.floor((Math.round(s) - whole * unit) / next[1]) : 0;
  return rest > 0 ? `${whole} ${name} ${rest} ${next[0]}` : `${whole} ${name}`;
}

const absolute = new Intl.DateTimeFormat('sv', {dateStyle: 'short',
  timeStyle: 'medium'});
const clock = new Intl.DateTimeFormat('sv', {timeStyle: 'medium'});
// 2026-11-29 03:12:40, in the reader's time zone; `s`: since 1970.
export const dateTime = (s) =>
  isNumber(s) && s > 0 ? absolute.format(s * 1000) : DASH;
export const timeOfDay = (s) =>
  isNumber(s) && s > 0 ? clock.format(s * 1000) : DASH;

export const nowSeconds = () => Date.now() / 1000;

export function relativeText(s, now = nowSeconds()) {
  if (!isNumber(s) || s <= 0) return DASH;
  const away = s - now;
  if (Math.abs(away) < 2) return 'now';
  return away > 0 ? `in ${duration(away)}` : `${duration(away)} ago`;
}

// "5 min ago", with the moment itself in the title.
export function relative(s, now) {
  if (!isNumber(s) || s <= 0) return DASH;
  return el('time', {datetime: new Date(s * 1000).toISOString(),
    title: dateTime(s)}, relativeText(s, now));
}

export const orDash = (text) =>
  text === null || text === undefined || text === '' ? DASH : String(text);

export const plural = (n, one, many = `${one}s`) =>
  `${count(n)} ${n === 1 ? one : many}`;
