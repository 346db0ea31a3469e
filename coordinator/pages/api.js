// The coordinator's documents, its events, and actions on it.

const TOKEN_KEY = 'gavel-token';
let memoryToken = '';  // where storage is forbidden
const REQUEST_MS_MAX = 20000;
const RETRY_MS_MIN = 1000;
const RETRY_MS_MAX = 30000;
// A listing takes at most one part in so many of a page's time.
const LISTING_PAUSE = 10;
const PAUSE_MS_MAX = 10000;
const PAGES_MAX = 2000;
const PAGE_ROWS = 1000;
const KEPT_MAX = 16;

// ---- The token, which `gavel dashboard` puts behind '#token='.

// Takes the token out of the address, so that nobody copies it with a link.
export function takeToken() {
  const match = /[#&]token=([^&]+)/.exec(location.hash);
  if (!match) return;
  try {
    sessionStorage.setItem(TOKEN_KEY, decodeURIComponent(match[1]));
  } catch {
    memoryToken = match[1];
  }
  history.replaceState(null, '', location.pathname + location.search +
      (location.hash.replace(/[#&]token=[^&]+/, '') || '#/cluster'));
}

function token() {
  try {
    return sessionStorage.getItem(TOKEN_KEY) || memoryToken;
  } catch {
    return memoryToken;
  }
}
export const mayAct = () => token() !== '';

// It is unknown, or has expired.
function dropToken() {
  memoryToken = '';
  try {
    sessionStorage.removeItem(TOKEN_KEY);
  } catch {
    // It was not kept there.
  }
  dispatchEvent(new Event('gavel-rights'));
}

// ---- Documents

async function errorOf(response) {
  let text = '';
  try {
    text = (await response.json()).error || '';
  } catch {
    // No JSON: the status line has to do.
  }
  const error = new Error(text || `the coordinator answers ${response.status} ${
    response.statusText}`);
  error.status = response.status;
  return error;
}

// With the rights of the token, where there is one: they decide what of other
// people's jobs is told.
async function request(path, options) {
  const headers = {...(options && options.headers)};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let response;
  try {
    response = await fetch(path, {cache: 'no-store', redirect: 'error', ...options,
      headers,
      signal: AbortSignal.timeout(REQUEST_MS_MAX)});
  } catch (cause) {
    throw new Error(cause.name === 'TimeoutError' ?
      `no answer within ${REQUEST_MS_MAX / 1000} s` :
      'the coordinator cannot be reached');
  }
  if (response.ok) return response;
  if (response.status === 401) dropToken();
  throw await errorOf(response);
}

export async function get(path) {
  const had = mayAct();
  let response;
  try {
    response = await request(path);
  } catch (error) {
    // The token has expired: what anybody may read is still to be had.
    if (error.status !== 401 || !had) throw error;
    response = await request(path);
  }
  const type = response.headers.get('content-type') || '';
  return type.includes('json') ? response.json() : response.text();
}

// All pages of a listing as one array. `key` names the rows in a document that
// is no array by itself.
export async function getAll(path, key) {
  const rows = [];
  let cursor = 0;
  for (let page = 0; page < PAGES_MAX; ++page) {
    const mark = path.includes('?') ? '&' : '?';
    const document = await get(
        `${path}${mark}limit=${PAGE_ROWS}${cursor ? `&cursor=${cursor}` : ''}`);
    if (Array.isArray(document)) return document;
    rows.push(...(document[key] || []));
    cursor = document.next_cursor || 0;
    if (!cursor) break;
  }
  return rows;
}

// What pages have shown last, by the keys of their polls, and when it came.
const kept = new Map();

// Loads again and again, never twice at once, and pauses in proportion to how
// long the last time took. Calls show(value, at) with when the value came: one
// that another page has shown, where there is no coordinator to give a new one.
export class Poll {
  constructor(load, show, fail, key) {
    this.load = load;
    this.show = show;
    this.fail = fail;
    this.key = key || (() => '');
    this.has = false;
    this.busy = false;
    this.due = 0;
    this.ended = false;
    this.timer = 0;
  }
  // Something has changed, or may have.
  async turn() {
    if (this.ended || document.hidden) return;
    if (this.busy) {
      this.again = true;
      return;
    }
    const wait = this.due - performance.now();
    if (wait > 0) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.turn(), wait);
      return;
    }
    this.busy = true;
    this.again = false;
    const begun = performance.now();
    try {
      this.take({value: await this.load(), at: Date.now() / 1000});
    } catch (error) {
      const away = !error.status || error.status >= 500;
      const last = kept.get(this.key());
      if (away && last && !this.has) this.take(last);
      if (!this.ended) this.fail(error);
    }
    this.due = performance.now() +
        Math.min(PAUSE_MS_MAX, LISTING_PAUSE * (performance.now() - begun));
    this.busy = false;
    if (this.again) this.turn();
  }
  take(one) {
    if (this.ended) return;
    this.has = true;
    const key = this.key();
    if (key) {
      kept.delete(key);
      kept.set(key, one);
      if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
    }
    this.show(one.value, one.at);
  }
  // At once, also shortly after the last time.
  now() {
    this.due = 0;
    return this.turn();
  }
  end() {
    this.ended = true;
    clearTimeout(this.timer);
  }
}

// ---- Actions

export async function act(action, target) {
  await request('api/action', {method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({action, target: String(target)})});
}

// ---- Events

// Calls onUpdate(document) for each event, and onState('live' | 'lost', since)
// when the connection comes or goes. Connects again by itself, later each time.
export function listen(onUpdate, onState) {
  let delay = RETRY_MS_MIN;
  let lostAt = 0;
  const lose = () => {
    lostAt = lostAt || Date.now();
    onState('lost', lostAt / 1000);
  };
  const connect = () => {
    const source = new EventSource('api/events');
    source.addEventListener('update', (event) => {
      // Each stream begins with one; without it the coordinator is not there.
      delay = RETRY_MS_MIN;
      lostAt = 0;
      onState('live', 0);
      let document;
      try {
        document = JSON.parse(event.data);
      } catch {
        return;  // cut short: the next one follows
      }
      onUpdate(document);
    });
    source.onerror = () => {
      source.close();
      lose();
      setTimeout(connect, delay);
      delay = Math.min(RETRY_MS_MAX, delay * 2);
    };
  };
  connect();
}
