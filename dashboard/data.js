// The state of the gateway: a stream with one event a second, and the API.

/** The seconds of each series. */
export const SECONDS = 900;

/** The state, as the last event described it. Series have `total` and `recent`, a list of `span` values for each counter: `SECONDS` or 60. */
export const model = {
  status: 'connecting', ready: false, time: 0, generation: undefined, skew: 0, gateway: {}, config: { errors: [], error_count: 0 }, problems: [], problem_count: 0, connections: {}, store: {},
  total: null, routes: new Map(), limits: new Map(), upstreams: new Map(), rules: [], hasRules: false,
};

const listeners = new Set();

/** Calls a function after each event, and when the connection changes. */
export const onChange = (listener) => listeners.add(listener);

const notify = () => listeners.forEach((listener) => listener());

export const limitKey = (route, limit) => `${route}/${limit}`;

/** Returns the scope of an override of one limit. The name of a domain can contain slashes, which a scope has as %2F. */
export const scopeOf = (route, limit) => `${route.startsWith('/') ? `/${route.slice(1).replaceAll('/', '%2F')}` : route}/${limit}`;

// === The stream ===

// The longest silence before the page connects again, and the pause after a rejected connection, in milliseconds. The first
// event of a connection has the whole history, which takes longer on a slow link.
const SILENCE = 6000;
const FIRST_SILENCE = 30000;
const PAUSE = 3000;
// A hidden page disconnects after this time, because a browser opens few connections to one server.
const HIDDEN = 30000;

let source = null;
let lastEvent = 0;
let hasEvent = false;
let hiddenTimer = 0;

export function connect() {
  source?.close();
  begin();
  source = new EventSource('/api/v1/events');
  source.addEventListener('history', (event) => receive(event, SECONDS));
  source.addEventListener('second', (event) => receive(event, 1));
  source.addEventListener('error', () => {
    // The browser connects again by itself, unless the response was an error.
    begin();
    setStatus('broken');
    if (source?.readyState === EventSource.CLOSED) retry();
  });
}

/** Begins to wait for the first event of a connection. */
function begin() {
  lastEvent = Date.now();
  hasEvent = false;
}

function disconnect(status) {
  source?.close();
  source = null;
  setStatus(status);
}

function retry() {
  disconnect('broken');
  setTimeout(() => { if (!source && model.status === 'broken') connect(); }, PAUSE);
}

function setStatus(status) {
  if (model.status === status) return;
  model.status = status;
  notify();
}

setInterval(() => { if (source && Date.now() - lastEvent > (hasEvent ? SILENCE : FIRST_SILENCE)) retry(); }, 1000);

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) hiddenTimer = setTimeout(() => disconnect('paused'), HIDDEN);
  else if (!source) connect();
});

function receive(event, seconds) {
  lastEvent = Date.now();
  hasEvent = true;
  const frame = JSON.parse(event.data);
  const { time, generation, gateway, connections, truncated, problems, problem_count } = frame;
  Object.assign(model, { time, generation, gateway, connections, truncated, problems, problem_count, config: frame.config, skew: skewAt(time), ready: true, status: 'live' });
  model.total = merge(model.total, frame.total, seconds);
  model.store = merge(model.store, frame.store, seconds);
  model.routes = mergeAll(model.routes, frame.routes, (route) => route.name, seconds);
  model.limits = mergeAll(model.limits, frame.limits, (limit) => limitKey(limit.route, limit.limit), seconds);
  model.upstreams = mergeAll(model.upstreams, frame.upstreams, (upstream) => upstream.name, seconds);
  if (rulesOf !== model.generation) loadRules();
  notify();
}

/** Returns how far the clock of the page is ahead of the gateway's, in milliseconds. The time of an event has whole seconds. */
function skewAt(time) {
  const skew = Date.now() - time * 1000;
  return Math.abs(skew) < 3000 ? 0 : skew;
}

/** Adds the last seconds of an event to a series, which keeps `span` seconds. Lists come without leading zeros. */
function merge(old, next, seconds) {
  const zeros = (length) => new Array(length).fill(0);
  const recent = next.recent.map((values, index) => {
    const known = seconds < SECONDS && old?.recent ? old.recent[index] : [];
    const all = known.concat(zeros(seconds - values.length), values);
    return all.length < next.span ? zeros(next.span - all.length).concat(all) : all.slice(-next.span);
  });
  return { ...next, recent };
}

function mergeAll(old, items, key, seconds) {
  return new Map(items.map((item) => [key(item), merge(old.get(key(item)), item, seconds)]));
}

// === The API ===

/** An error of the API, with its status. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `the gateway responded with status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Sends a request to the API, and returns the JSON. */
export async function api(path, { method = 'GET', token, body } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const request = { method, headers, cache: 'no-store', body: body === undefined ? undefined : JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`/api/v1/${path}`, request);
  } catch {
    throw new ApiError(0, { detail: 'the gateway does not respond' });
  }
  const json = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(response.status, json);
  return json;
}

// When the rules of the model were applied. JSON has no `undefined`, so the first event differs.
let rulesOf;
let isReadingRules = false;

/** Reads the limits of the rule file. After a failure, the next event tries again. */
async function loadRules() {
  if (isReadingRules) return;
  isReadingRules = true;
  const { generation } = model;
  const rules = await api('limits').catch(() => null);
  isReadingRules = false;
  if (!rules) return;
  [model.rules, model.hasRules, rulesOf] = [rules, true, generation];
  notify();
}

// === Names of clients ===

// The values behind the hashes of clients, if the gateway shows them or the operator has written them. At most MAX_VALUES.
const MAX_VALUES = 1000;
const valuesByHash = new Map();

export const isHash = (client) => /^[0-9a-f]{32}$/.test(client ?? '');

/** Keeps the value behind the hash of a client. */
export function learnValue(client, value) {
  if (!isHash(client) || !value) return;
  if (valuesByHash.size >= MAX_VALUES) valuesByHash.clear();
  valuesByHash.set(client, value.length > 40 ? `${value.slice(0, 40)}…` : value);
}

/** Returns the value of a client with the start of its hash; only the address or the hash if the page does not know the value. */
export function clientName(client) {
  const value = valuesByHash.get(client);
  return value ? `${value} (${client.slice(0, 8)}…)` : client;
}

/** Reads a list of rejected clients, and keeps their values. */
export async function readRejected(path) {
  const found = await api(path);
  found.forEach(({ client, value }) => learnValue(client, value));
  return found;
}

// === Figures ===

/** The seconds of the mean that the page shows as the current rate. */
export const RECENT = 5;

/** Returns the mean of the last seconds of a counter. */
export function perSecond(series, index, seconds = RECENT) {
  return series ? sum(series, index, seconds) / seconds : 0;
}

/** Returns the sum of the last seconds of a counter. */
export function sum(series, index, seconds = SECONDS) {
  if (!series?.recent) return 0;
  return series.recent[index].slice(-seconds).reduce((total, value) => total + value, 0);
}

/** Returns the sums of several counters for each second. */
export function combined(series, indices) {
  if (!series?.recent) return [];
  return series.recent[indices[0]].map((_, second) => indices.reduce((total, index) => total + series.recent[index][second], 0));
}
