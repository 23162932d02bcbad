// The pages of a limit, of a route and of the store.

import { api, limitKey, model, perSecond, sum } from './data.js';
import { chart, count, each, facts, h, link, milliseconds, nameOf, path, per, percent, place, rate, section, setText, text } from './draw.js';
import { canChange, reset } from './changes.js';
import { lookup } from './client.js';
import { fleet } from './fleet.js';
import { load, rejected } from './clients.js';
import { latencyOf, limits, storeFacts } from './overview.js';
import { table } from './table.js';

// === A limit ===

// The route of shared limits.
const SHARED = '@';

export function limitPage(route, limit, query) {
  const key = limitKey(route, limit);
  const rule = () => model.rules.find((rule) => rule.route === route && rule.limit === limit);
  const series = () => model.limits.get(key);
  const value = (read) => () => { const found = rule(); return found ? read(found) ?? '–' : '–'; };
  const address = `limits/${encodeURIComponent(route)}/${encodeURIComponent(limit)}`;
  const only = (isShown, node) => { each(() => node.classList.toggle('hidden', !isShown(rule()))); return node; };
  load(5000, async () => { try { model.rules = await api('limits'); } catch { /* the stream shows the cause */ } });
  return [
    h('p', { class: 'crumbs' }, h('a', { href: '#/' }, 'Overview'), route !== SHARED && [' / ', h('a', { href: path('route', route) }, isDomain(route) ? `Domain ${route.slice(1)}` : nameOf(route))]),
    h('h1', {}, route === SHARED ? `Shared limit ${limit}` : `Limit ${key}`),
    note(() => model.ready && model.rules.length > 0 && !rule(), 'No limit in force has this name. It may have been removed from the rule file.'),
    facts([
      ['Mode', value((rule) => rule.mode)],
      ['Client', value((rule) => rule.client)],
      ['Rate', value(rateOf)],
      ['Algorithm', value((rule) => rule.algorithm)],
      ['Rejects requests', value((rule) => (rule.shadow ? 'no, it is a shadow' : 'yes'))],
      ['Permits used', value((rule) => (rule.permits ? `${count(rule.permits.used)}, ${rule.permits.reserved == null ? '' : `${count(rule.permits.reserved)} reserved, `}${count(rule.permits.remaining)} remain` : rule.mode === 'OVERALL' ? 'unknown' : 'one bucket per client'))],
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
    only((rule) => rule?.rates?.tiers.length > 0, section('Tiers', tiers(rule))),
    only((rule) => rule?.routes?.length > 1, section('Routes that share the limit', routes(rule))),
    section('Clients rejected most in the last 5 minutes', rejected(`${address}/rejected?minutes=5`)),
    section('One client', lookup(route, limit, rule, address, query)),
    section('Settings in force', settings((config) => limitOf(config, route, limit))),
    canChange() && section('Reset all clients',
      h('p', {}, 'All buckets of this limit become unused: each client has all its permits again.'),
      h('button', { type: 'button', onclick: () => reset({ path: address, what: `all clients of ${key}` }) }, 'Reset the limit')),
  ].filter(Boolean);
}

/** Returns whether a name is the route of a domain of the rate limit service. */
const isDomain = (route) => route.startsWith('/');

/** Returns the settings of a domain. */
const domainOf = (config, route) => config.service?.domains.find((domain) => domain.route === route);

/** Returns the settings of a limit. All routes of a shared limit have the same. */
function limitOf(config, route, limit) {
  if (isDomain(route)) return domainOf(config, route)?.limits.find((other) => other.name === limit);
  const isWanted = (other) => other.name === limit && other.shared === (route === SHARED);
  return config.routes.filter((other) => route === SHARED || other.name === route).flatMap(({ limits }) => limits).find(isWanted);
}

/** Returns the rate of a limit in words. */
function rateOf({ rate: number, interval_ms, rates }) {
  if (number == null) return 'set in Redis';
  if (!rates) return per(number, interval_ms);
  return rates.max == null ? `by tier (${rates.by})` : `${per(number, interval_ms)}, up to ${count(rates.max)} by ${rates.by}`;
}

/** The tiers of a limit. */
function tiers(rule) {
  return table({
    caption: 'Tiers of the limit',
    columns: [
      { head: 'Tier', isHead: true, cell: text((row) => row.tier + (row.isDefault ? ' (default)' : '')) },
      { head: 'Rate', cell: text((row) => per(row.rate, row.interval_ms)) },
      { head: 'Full bucket', kind: 'number', cell: text((row) => count(row.burst)) },
    ],
    rows: () => (rule()?.rates?.tiers ?? []).map((tier) => ({ ...tier, key: tier.tier, isDefault: tier.tier === rule().rates.default })),
    empty: '',
  });
}

/** The routes of a shared limit. */
function routes(rule) {
  return table({
    caption: 'Routes that share the limit', max: 12, search: (row) => row.key,
    columns: [{ head: 'Route', isHead: true, cell: link((row) => row.key, (row) => path('route', row.key)) }],
    rows: () => (rule()?.routes ?? []).map((key) => ({ key })),
    empty: '',
  });
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

/** The settings of an item of the configuration, as the gateway uses them. */
function settings(find) {
  const shown = h('pre', { tabindex: '0', 'aria-label': 'Settings in force' }, 'Reading the configuration.');
  let applied;
  each(async () => {
    if (!model.ready || applied === model.generation) return;
    applied = model.generation;
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
  const isEmpty = (value) => value == null || (typeof value === 'object' && Object.values(value).every(isEmpty));
  return Object.entries(item).filter(([, value]) => !isEmpty(value)).map(([key, value]) => {
    if (typeof value !== 'object') return `${indent}${key}: ${value}`;
    if (Array.isArray(value) && value.every((part) => typeof part !== 'object')) return `${indent}${key}: [${value.join(', ')}]`;
    if (Array.isArray(value)) return `${indent}${key}:\n${value.map((part) => yaml(part, `${indent}    `).replace(/^\s*/, `${indent}  - `)).join('\n')}`;
    return `${indent}${key}:\n${yaml(value, `${indent}  `)}`;
  }).join('\n');
}

// === A route ===

export function routePage(route) {
  if (isDomain(route)) return domainPage(route);
  const series = () => model.routes.get(route);
  const kinds = ['successful', '4xx, not 429', 'rejected with 429', '5xx', 'client left (499)'];
  const line = (index, style) => ({ name: kinds[index], style, values: () => series()?.recent[index] ?? [] });
  return [
    h('p', { class: 'crumbs' }, h('a', { href: '#/' }, 'Overview')),
    h('h1', {}, route ? `Route ${route}` : 'Requests without a route'),
    facts([['Response time in the last minute: p50, p99', () => latencyOf(series())]]),
    chart({
      title: 'Responses', unit: 'per second',
      lines: [line(0, 'muted'), line(2, 'accent'), line(1, 'accent dashed'), line(3, 'strong dotted')],
    }),
    section('Responses by kind', outcomes(kinds, series)),
    section('Limits', limits((rule) => rule.routes.includes(route))),
    section('Settings in force', settings((config) => config.routes.find((other) => other.name === route))),
  ];
}

/** The page of a domain of the rate limit service. */
function domainPage(route) {
  return [
    h('p', { class: 'crumbs' }, h('a', { href: '#/' }, 'Overview')),
    h('h1', {}, `Domain ${route.slice(1)}`),
    section('Limits', limits((rule) => rule.routes.includes(route))),
    section('Clients rejected most in the last 5 minutes', rejected('rejected?minutes=5', 10, (row) => row.route === route)),
    section('Settings in force', settings((config) => domainOf(config, route))),
  ];
}

// === The store ===

export function storePage() {
  return [
    h('h1', {}, 'Store'),
    storeFacts(),
    section('Gateways', fleet()),
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
