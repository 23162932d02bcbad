// The pages of a limit, of a route and of the store.

import { api, clientName, isHash, learnValue, limitKey, model, perSecond, sum } from './data.js';
import {
  ago, chart, count, each, facts, h, interval, milliseconds, nameOf, path, percent, place, rate, refresh, section,
  setText, table, text, until,
} from './draw.js';
import { VALUES_HINT, canChange, lines, overrideForm, reset } from './changes.js';
import { limits, load, rejected, storeFacts } from './overview.js';

// === A limit ===

export function limitPage(route, limit, query) {
  const key = limitKey(route, limit);
  const rule = () => model.rules.find((rule) => rule.route === route && rule.limit === limit);
  const series = () => model.limits.get(key);
  const value = (read) => () => { const found = rule(); return found ? read(found) ?? '–' : '–'; };
  const address = `limits/${encodeURIComponent(route)}/${encodeURIComponent(limit)}`;
  load(5000, async () => { try { model.rules = await api('limits'); } catch { /* the stream shows the cause */ } });
  return [
    h('p', { class: 'crumbs' }, h('a', { href: '#/' }, 'Overview'), ' / ', h('a', { href: path('route', route) }, nameOf(route))),
    h('h1', {}, `Limit ${key}`),
    note(() => model.ready && model.rules.length > 0 && !rule(), 'No limit in force has this name. It may have been removed from the rule file.'),
    facts([
      ['Mode', value((rule) => rule.mode)],
      ['Client', value((rule) => rule.client)],
      ['Rate', value((rule) => (rule.rate == null ? 'set in Redis' : `${count(rule.rate)} per ${interval(rule.interval_ms)}`))],
      ['Algorithm', value((rule) => rule.algorithm)],
      ['Rejects requests', value((rule) => (rule.shadow ? 'no, it is a shadow' : 'yes'))],
      ['Permits used', value((rule) => (rule.permits ? `${count(rule.permits.used)}, ${count(rule.permits.remaining)} remain` : rule.mode === 'OVERALL' ? 'unknown' : 'one bucket per client'))],
      ['Share used', () => (series()?.used == null ? '–' : percent(series().used))],
      ['Rule file', value((rule) => place(rule.location))],
    ]),
    chart({
      title: 'Decisions', unit: 'per second',
      lines: [
        { name: 'allowed', style: 'muted', values: () => series()?.recent[0] ?? [] },
        { name: 'rejected', style: 'accent', values: () => series()?.recent[1] ?? [] },
        { name: 'shadow would reject', style: 'accent dashed', values: () => series()?.recent[2] ?? [] },
        { name: 'store failed', style: 'strong dotted', values: () => series()?.recent[3] ?? [] },
      ],
    }),
    section('Outcomes', outcomes(['allowed', 'limited', 'shadow_limited', 'store_failed'], series)),
    section('Clients rejected most in the last 5 minutes', rejected(`${address}/rejected?minutes=5`)),
    section('One client', lookup(route, limit, rule, address, query)),
    section('Settings in force', settings((config) => config.routes.find((other) => other.name === route)?.limits.find((other) => other.name === limit))),
    canChange() && section('Reset all clients',
      h('p', {}, 'All buckets of this limit become unused: each client has all its permits again.'),
      h('button', { type: 'button', onclick: () => reset({ path: address, what: `all clients of ${key}` }) }, 'Reset the limit')),
  ].filter(Boolean);
}

/** A note that is shown while a condition holds. */
function note(isShown, words) {
  const node = h('p', { class: 'note' }, words);
  each(() => node.classList.toggle('hidden', !isShown()));
  return node;
}

/** A table of counters by name. */
function outcomes(names, series) {
  return table({
    caption: 'Counts by outcome',
    columns: [
      { head: 'Outcome', isHead: true, cell: text((row) => row.key) },
      { head: 'Per second', kind: 'number', cell: text(({ index }) => rate(perSecond(series(), index))) },
      { head: 'Last minute', kind: 'number', cell: text(({ index }) => count(sum(series(), index, 60))) },
      { head: '15 minutes', kind: 'number', cell: text(({ index }) => count(sum(series(), index))) },
      { head: 'In all', kind: 'number', cell: text(({ index }) => count(series()?.total[index])) },
    ],
    rows: () => names.map((key, index) => ({ key, index })),
    empty: '',
  });
}

/** The form that shows the permits of one client. The figures follow the store while the page is shown. */
function lookup(route, limit, rule, address, query) {
  const by = h('select', { name: 'by' }, h('option', { value: 'value' }, 'value'), h('option', { value: 'address' }, 'address'), h('option', { value: 'hash' }, 'hash'));
  const input = h('textarea', { name: 'client', rows: '2', autocomplete: 'off', spellcheck: 'false' });
  const problem = h('p', { class: 'error', role: 'alert' });
  const actions = h('div');
  const isOverall = () => rule()?.mode === 'OVERALL';
  let asked = null; // the parameters of the client that is shown
  let client = null;
  const state = clientState(() => client);
  const read = async () => {
    const parts = asked;
    if (parts == null) return;
    let [found, words] = [client, ''];
    try {
      found = await api(`${address}/client?${parts}`);
    } catch (error) {
      words = error.message;
    }
    if (parts !== asked) return; // the operator has asked for another client
    client = found;
    setText(problem, words);
    result.classList.toggle('hidden', !client);
    refresh();
  };
  const ask = async () => {
    const values = by.value === 'value' ? lines(input.value) : [input.value.trim()];
    [asked, client] = [isOverall() ? '' : values.map((value) => `${by.value}=${encodeURIComponent(value)}`).join('&'), null];
    const parts = asked;
    actions.replaceChildren();
    await read();
    if (parts !== asked || !client) return;
    if (by.value === 'value' && !isOverall()) learnValue(client.client, values.join(', '));
    refresh();
    actions.replaceChildren(...clientActions(client.client, { route, limit, address, parts, done: read }));
  };
  const result = h('div', { class: 'result hidden' }, state, actions);
  load(3000, read);
  const named = h('div', { class: 'fields' }, h('label', {}, 'Name the client by', by), h('label', { class: 'grow' }, 'Client', input));
  each(() => named.classList.toggle('hidden', isOverall()));
  const wanted = query?.get?.('client');
  if (wanted) {
    by.value = isHash(wanted) ? 'hash' : 'address';
    input.value = wanted.replace(/\/\d+$/, '');
    queueMicrotask(ask);
  }
  const form = h('form', { onsubmit: (event) => { event.preventDefault(); ask(); } }, named, h('button', {}, 'Look up'));
  return h('div', {}, h('p', { class: 'hint' }, 'Looking up a client charges nothing. A value is as the client sends it. ', VALUES_HINT), form, problem, result);
}

/** The facts about the client that `read` returns. */
function clientState(read) {
  const fact = (show) => () => { const client = read(); return client ? show(client) : '–'; };
  const next = ({ next_permit_at: at, now }) => (!at ? 'never' : at <= now ? 'now' : until(at));
  const override = ({ override }) => (override ? `${override.action}, ends ${until(override.until)}: ${override.reason ?? ''}` : 'none');
  return facts([
    ['Client', fact((client) => (client.client ? clientName(client.client) : 'all requests'))],
    ['Remaining', fact((client) => count(client.remaining))],
    ['Used', fact((client) => count(client.used))],
    ['Next permit', fact(next)],
    ['Bucket expires', fact((client) => (client.expires_at ? ago(client.expires_at) : 'unused'))],
    ['Bucket', fact((client) => (client.overflow ? 'the shared overflow bucket' : 'its own'))],
    ['Override', fact(override)],
  ]);
}

/** The changes of one client. Calls `done` after each. */
function clientActions(client, { route, limit, address, parts, done }) {
  if (!canChange()) return [];
  const what = () => `${client ? clientName(client) : 'all requests'} of ${route}/${limit}`;
  return [
    h('button', { type: 'button', onclick: () => reset({ path: `${address}/client?${parts}`, what: what(), done }) }, 'Reset this client'),
    client && h('details', {}, h('summary', {}, 'Exempt, ban or adjust this client'), overrideForm({ scope: `${route}/${limit}`, client, done })),
  ].filter(Boolean);
}

/** The settings of an item of the configuration, as the gateway uses them. */
function settings(find) {
  const shown = h('pre', { tabindex: '0', 'aria-label': 'Settings in force' }, 'Reading the configuration.');
  let applied;
  each(async () => {
    if (!model.ready || applied === model.config.applied_at) return;
    applied = model.config.applied_at;
    try {
      const found = find(await api('config'));
      setText(shown, found ? yaml(found) : 'There is no such item in the rule file.');
    } catch (error) {
      applied = undefined; // the next event tries again
      setText(shown, `The configuration cannot be read: ${error.message}.`);
    }
  });
  return shown;
}

/** Writes an item in the form of a rule file. Values that are not set are left out. */
function yaml(item, indent = '') {
  const isEmpty = (value) => value == null || (typeof value === 'object' && Object.keys(value).length === 0);
  return Object.entries(item).filter(([, value]) => !isEmpty(value)).map(([key, value]) => {
    if (typeof value !== 'object') return `${indent}${key}: ${value}`;
    if (Array.isArray(value) && value.every((part) => typeof part !== 'object')) return `${indent}${key}: [${value.join(', ')}]`;
    if (Array.isArray(value)) return `${indent}${key}:\n${value.map((part) => yaml(part, `${indent}    `).replace(/^\s*/, `${indent}  - `)).join('\n')}`;
    return `${indent}${key}:\n${yaml(value, `${indent}  `)}`;
  }).join('\n');
}

// === A route ===

export function routePage(route) {
  const series = () => model.routes.get(route);
  const kinds = ['successful', '4xx, not 429', 'rejected with 429', '5xx', 'client left (499)'];
  const line = (index, style) => ({ name: kinds[index], style, values: () => series()?.recent[index] ?? [] });
  return [
    h('p', { class: 'crumbs' }, h('a', { href: '#/' }, 'Overview')),
    h('h1', {}, route ? `Route ${route}` : 'Requests without a route'),
    chart({
      title: 'Responses', unit: 'per second',
      lines: [line(0, 'muted'), line(2, 'accent'), line(1, 'accent dashed'), line(3, 'strong dotted')],
    }),
    section('Responses by kind', outcomes(kinds, series)),
    section('Limits', limits((rule) => rule.route === route)),
    section('Settings in force', settings((config) => config.routes.find((other) => other.name === route))),
  ];
}

// === The store ===

export function storePage() {
  return [
    h('h1', {}, 'Store'),
    storeFacts(),
    chart({
      title: 'Decisions of the store', unit: 'per second',
      lines: [
        { name: 'decided', style: 'muted', values: () => model.store.recent?.[0] ?? [] },
        { name: 'failed', style: 'accent', values: () => model.store.recent?.[2] ?? [] },
      ],
    }),
    chart({
      title: 'Time of a decision', unit: '', format: milliseconds,
      lines: [{ name: 'mean', style: 'accent', values: () => model.store.recent?.[1] ?? [], per: () => model.store.recent?.[0] ?? [] }],
    }),
    section('Counts', facts([
      ['Decisions', () => count(model.store.total?.[0])],
      ['Failed decisions', () => count(model.store.total?.[2])],
      ['Calls', () => count(model.store.calls)],
      ['Decisions per call', () => (model.store.calls ? rate(model.store.total[0] / model.store.calls) : '–')],
      ['Rejected from the negative cache', () => count(model.store.known_refusals)],
      ['Permits charged afterwards', () => count(model.store.charged)],
    ])),
    section('Settings in force', settings((config) => config.store)),
  ];
}
