// The overview: what the gateway serves, what it rejects and why, and the state of everything around it.

import { rejected, talkers } from './clients.js';
import { RECENT, combined, limitKey, model, perSecond, sum } from './data.js';
import {
  ago, bar, chart, count, each, facts, flagged, h, link, live, milliseconds, nameOf, path, per, percent, rate, section,
  sentence, sparkline, state, text,
} from './draw.js';
import { table } from './table.js';

const ALL = [0, 1, 2, 3, 4];

export function overview() {
  return [
    h('h1', { class: 'unseen' }, 'Overview'),
    tiles(),
    emptyHint(),
    section('Clients rejected most in the last 5 minutes', rejected('rejected?minutes=5', 6)),
    chart({
      title: 'Requests and rejections', unit: 'per second',
      lines: [
        { name: 'requests', style: 'muted', values: () => combined(model.total, ALL) },
        { name: 'rejected with 429', style: 'accent', values: () => model.total?.recent[2] ?? [] },
      ],
    }),
    section('Routes', routes()),
    section('Limits closest to their rate', limits(() => true, 10)),
    section('Clients with the most requests in the last 5 minutes', talkers()),
    h('div', { class: 'columns' },
      section('Store', storeFacts(), h('p', {}, h('a', { href: '#/store' }, 'More about the store'))),
      section('Connections', facts([
        ['Open', () => count(model.connections.open)],
        ['HTTP/1', () => count(model.connections.http1)],
        ['HTTP/2', () => count(model.connections.http2)],
        ['Refused by a connection limit', () => count(model.connections.refused)],
        ['Ended by a bound, the protocol or a ban', () => count(model.connections.rejected)],
      ])),
      section('Rule file', ruleFile())),
    section('Upstreams', upstreams()),
  ];
}

function tiles() {
  const tile = (name, read, detail) => h('div', { class: 'tile' }, h('dt', {}, name), live(read, 'dd', { class: 'big' }), live(detail, 'dd', { class: 'detail' }));
  return h('dl', { class: 'tiles' },
    tile('Requests per second', () => rate(ALL.reduce((total, index) => total + perSecond(model.total, index), 0)), () => `${count(model.total?.total.reduce((a, b) => a + b, 0))} in all`),
    tile('Rejected per second', () => rate(perSecond(model.total, 2)), () => `${count(model.total?.total[2])} in all`),
    tile('Server errors per second', () => rate(perSecond(model.total, 3)), () => `${count(model.total?.total[3])} in all`),
    tile('Client connections', () => count(model.connections.open), () => `${count(model.connections.refused)} refused`),
    tile('Store', () => storeState()[1], () => (model.store.outage ? '' : latency())));
}

function emptyHint() {
  const node = h('div', { class: 'note' },
    h('h2', {}, 'No requests yet'),
    h('p', {}, 'The gateway is ready. Send a request to an address of ', h('code', {}, 'listen'), ' in the rule file: its route, its limits and its upstream appear here within a second.'));
  each(() => node.classList.toggle('hidden', !model.ready || model.routes.size > 0));
  return node;
}

function routes() {
  const figure = (index) => text(({ series }) => rate(perSecond(series, index)));
  return table({
    caption: 'Routes, busiest first', max: 12, search: (row) => nameOf(row.key),
    columns: [
      { head: 'Route', isHead: true, cell: link((row) => nameOf(row.series.name), (row) => path('route', row.series.name)) },
      { head: 'Requests/s', kind: 'number', cell: text((row) => rate(row.busy)) },
      { head: 'Rejected/s', kind: 'number', cell: figure(2) },
      { head: '4xx/s', kind: 'number', cell: figure(1) },
      { head: '5xx/s', kind: 'number', cell: figure(3) },
      { head: 'Requests in all', kind: 'number', cell: text(({ series }) => count(series.total.reduce((a, b) => a + b, 0))) },
      { head: 'p50, p99', kind: 'number', cell: text(({ series }) => latencyOf(series)) },
      { head: '15 minutes', kind: 'drawn', cell: sparkline(({ series }) => [combined(series, ALL), series.recent[2]]) },
    ],
    rows: () => [...model.routes.values()]
      .map((series) => ({ key: series.name, series, busy: ALL.reduce((total, index) => total + perSecond(series, index), 0) }))
      .sort((a, b) => sum(b.series, 0, 60) + sum(b.series, 2, 60) - sum(a.series, 0, 60) - sum(a.series, 2, 60) || a.key.localeCompare(b.key)),
    empty: 'A route appears here with its first request.',
  });
}

/** The time until half of the responses of the last minute began, and until 99 % did. */
export const latencyOf = (series) => (series?.latency ? `${milliseconds(series.latency.p50)}, ${milliseconds(series.latency.p99)}` : '–');

/** A table of the limits that `isShown` selects: OVERALL limits by the used share, then PER_CLIENT limits by rejections. */
export function limits(isShown, max) {
  // During an outage, the gateway does not know how many permits are used.
  const use = (row) => {
    if (row.isPerClient) return 'per client';
    if (model.store.outage) return 'unknown';
    return row.used == null ? 'unused' : percent(row.used);
  };
  const rateOf = ({ rule: { rate: number, interval_ms, rates } }) => {
    if (number == null) return 'set in Redis';
    return rates ? `${rates.tiers.length ? 'by tier' : 'by request'}, default ${per(number, interval_ms)}` : per(number, interval_ms);
  };
  return table({
    caption: 'Limits: OVERALL by the used share, then PER_CLIENT by rejections', max, search: (row) => row.key,
    columns: [
      { head: 'Limit', isHead: true, cell: link((row) => row.key, (row) => path('limit', row.rule.route, row.rule.limit)) },
      { head: 'Rate', cell: text((row) => (row.isPerClient ? `${rateOf(row)} and client` : rateOf(row)) + (row.rule.shadow ? ' (shadow)' : '')) },
      { head: 'Used', cell: bar((row) => row.used, use) },
      { head: 'Allowed/s', kind: 'number', cell: text((row) => rate(perSecond(row.series, 0))) },
      { head: 'Rejected/s', kind: 'number', cell: text((row) => rate(perSecond(row.series, row.rule.shadow ? 2 : 1))) },
      { head: 'Rejected in a minute', kind: 'number', cell: text((row) => count(row.minute)) },
      { head: '15 minutes', kind: 'drawn', cell: sparkline((row) => (row.series ? [combined(row.series, [0, 1, 2, 3]), combined(row.series, [1, 2])] : [[], []])) },
    ],
    rows: () => model.rules.filter(isShown).map((rule) => {
      const key = limitKey(rule.route, rule.limit);
      const series = model.limits.get(key);
      const isPerClient = rule.mode === 'PER_CLIENT';
      const used = isPerClient || model.store.outage ? null : series?.used ?? null;
      const minute = sum(series, 1, 60) + sum(series, 2, 60);
      // Whole percents, as shown: rows with the same figure keep their order.
      return { key, rule, series, isPerClient, used, minute, rank: isPerClient ? minute : Math.round(100 * (used ?? 0)) };
    }).sort((a, b) => a.isPerClient - b.isPerClient || b.rank - a.rank || a.key.localeCompare(b.key)),
    empty: () => (model.hasRules ? 'No limits. Add `limits` to a route of the rule file.' : 'Loading'),
  });
}

// === The store, the rule file and the upstreams ===

export function storeState() {
  if (!model.ready) return ['unknown', 'Unknown'];
  if (model.store.outage) return ['bad', 'Unreachable'];
  if (model.store.open_breakers > 0) return ['warn', 'Too slow'];
  return ['good', model.store.kind === 'redis' ? 'Reachable' : 'In memory'];
}

function latency() {
  const decisions = sum(model.store, 0, RECENT);
  if (model.store.kind === 'memory') return 'in this process';
  return decisions ? `${milliseconds(sum(model.store, 1, RECENT) / decisions)} per decision` : 'no decisions';
}

export function storeFacts() {
  return facts([
    ['State', state(storeState)],
    ['Cause', () => (model.store.outage ? sentence(model.store.outage) : '–')],
    ['Latency', () => (model.store.outage ? '–' : latency())],
    ['Failed decisions', () => count(model.store.total?.[2])],
    ['Breaker', () => (model.store.open_breakers ? `open on ${model.store.open_breakers} connections` : 'closed')],
    ['Gateways that share it', () => (model.store.gateways == null ? 'only this one' : count(model.store.gateways))],
    ['Permits owed to it', () => (model.store.owed == null ? '–' : count(model.store.owed))],
  ]);
}

function ruleFile() {
  return facts([
    ['State', state(() => (model.config.error_count ? ['bad', `${model.config.errors.some(({ team }) => team) ? 'Partly in force' : 'Rejected'}, ${model.config.error_count} errors`] : ['good', 'In force']))],
    ['Applied', () => ago(model.config.applied_at)],
    ['Hash', () => (model.config.hash ? model.config.hash.slice(0, 12) : '–')],
    ['Version of the gateway', () => model.gateway.version ?? '–'],
  ]);
}

/** Returns whether an upstream or one of its targets is in the list of problems. Drained targets are not. */
function hasProblem({ name }) {
  return model.problems.some(({ kind, subject }) => (kind === 'upstream' && subject === name) || (kind === 'target' && subject.startsWith(`${name}/`)));
}

function upstreams() {
  const answered = (row) => sum(row, 0, 10);
  return table({
    caption: 'Upstreams by name', max: 12, search: (row) => row.key,
    columns: [
      { head: 'Upstream', isHead: true, cell: text((row) => row.name) },
      { head: 'Responses/s', kind: 'number', cell: text((row) => rate(perSecond(row, 0))) },
      { head: 'Failures/s', kind: 'number', cell: text((row) => rate(perSecond(row, 1))) },
      { head: 'Response time', kind: 'number', cell: text((row) => (answered(row) ? milliseconds(sum(row, 2, 10) / answered(row)) : '–')) },
      { head: 'Targets usable', kind: 'number', cell: flagged((row) => `${row.usable} of ${row.targets}${row.panic ? ', all used (panic)' : ''}`, hasProblem) },
      { head: 'Connections', kind: 'number', cell: text((row) => count(row.connections)) },
      { head: 'Waiting', kind: 'number', cell: text((row) => count(row.waiting)) },
      { head: '15 minutes', kind: 'drawn', cell: sparkline((row) => [combined(row, [0, 1]), row.recent[1]]) },
    ],
    rows: () => [...model.upstreams.values()].map((row) => ({ ...row, key: row.name })),
    empty: 'An upstream appears here with its first request.',
  });
}
