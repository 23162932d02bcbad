// The permits of one client of a limit: the form that names the client, its figures, and its changes.

import { api, clientName, isHash, learnValue, scopeOf } from './data.js';
import { ago, count, each, facts, h, per, refresh, setText, text, until } from './draw.js';
import { table } from './table.js';
import { VALUES_HINT, canChange, lines, overrideForm, reset } from './changes.js';
import { load } from './clients.js';

/** The form that shows the permits of one client. The figures follow the store while the page is shown. */
export function lookup(route, limit, rule, address, query) {
  const by = h('select', { name: 'by' }, h('option', { value: 'value' }, 'value'), h('option', { value: 'hash' }, 'hash'));
  const input = h('textarea', { name: 'client', rows: '2', autocomplete: 'off', spellcheck: 'false' });
  const problem = h('p', { class: 'error', role: 'alert' });
  const actions = h('div');
  const isOverall = () => rule()?.mode === 'OVERALL';
  const tier = tierField(rule);
  let asked = null; // the parameters of the client that is shown
  let client = null;
  const read = async () => {
    const parts = asked;
    if (parts == null) return;
    let [found, words] = [client, ''];
    try {
      found = await api(`${address}/client?${[parts, tier.parameter()].filter(Boolean).join('&')}`);
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
  const result = h('div', { class: 'result hidden' }, clientState(() => client), possibleRates(() => client), actions);
  load(3000, read);
  const named = h('div', { class: 'fields' }, h('label', {}, 'Name the client by', by), h('label', { class: 'grow' }, 'Client', input), tier.node);
  each(() => named.classList.toggle('hidden', isOverall()));
  // Limits of domains know no addresses.
  if (!route.startsWith('/')) by.lastChild.before(h('option', { value: 'address' }, 'address'));
  const wanted = query?.get?.('client');
  if (wanted) {
    by.value = isHash(wanted) ? 'hash' : 'address';
    input.value = wanted.replace(/\/\d+$/, '');
    queueMicrotask(ask);
  }
  const form = h('form', { onsubmit: (event) => { event.preventDefault(); ask(); } }, named, h('button', {}, 'Look up'));
  return h('div', {}, h('p', { class: 'hint' }, 'Looking up a client charges nothing. A value is as the client sends it. ', VALUES_HINT), form, problem, result);
}

/** The field for the tier of a client, or for the number that its requests contain. Other limits have no such field. */
function tierField(rule) {
  const names = h('select', { name: 'tier' }, h('option', { value: '' }, 'of the client'));
  const number = h('input', { name: 'rate', type: 'number', min: '1', placeholder: 'of the client' });
  const [tiers, numbers] = [h('label', {}, 'Tier', names), h('label', {}, 'Rate in its requests', number)];
  each(() => {
    const rates = rule()?.rates;
    tiers.classList.toggle('hidden', !rates?.tiers.length);
    numbers.classList.toggle('hidden', rates?.max == null);
    if (rates?.tiers.length && names.children.length !== rates.tiers.length + 1) {
      names.replaceChildren(names.firstChild, ...rates.tiers.map(({ tier }) => h('option', { value: tier }, tier)));
    }
  });
  const parameter = () => {
    if (names.value) return `tier=${encodeURIComponent(names.value)}`;
    return number.value ? `rate=${encodeURIComponent(number.value)}` : '';
  };
  return { node: [tiers, numbers], parameter };
}

const SOURCES = {
  parameter: 'as you selected', client: 'from the values of the client', api_key: 'from the API keys of the client',
  override: 'any tier: the override sets the rate', unknown: 'unknown: only requests of the client show it',
};

/** Returns when the next request for one permit is granted. */
function nextPermit({ next_permit_at: at, now }) {
  return !at ? 'never' : at <= now ? 'now' : until(at);
}

/** The facts about the client that `read` returns. */
function clientState(read) {
  const fact = (show) => () => { const client = read(); return client ? show(client) : '–'; };
  // Without the tier, no figure is the client's.
  const figure = (show) => fact((client) => (client.rate_from === 'unknown' ? 'depends on the request' : show(client)));
  const next = (client) => ({ ban: 'none, it is banned', exempt: 'now, it is exempt' })[client.override?.action] ?? nextPermit(client);
  const override = ({ override }) => (override ? `${override.action}, ends ${until(override.until)}: ${override.reason ?? ''}` : 'none');
  const tier = ({ tier, rate_from: from }) => (from === 'limit' ? 'the limit has no tiers' : [tier, SOURCES[from]].filter(Boolean).join(', '));
  return facts([
    ['Client', fact((client) => (client.client ? clientName(client.client) : 'all requests'))],
    ['Tier', fact(tier)],
    ['Rate', figure((client) => (client.rate == null ? 'set in Redis' : per(client.rate, client.interval_ms)))],
    ['Remaining', figure((client) => count(client.remaining))],
    ['Used', figure((client) => count(client.used))],
    ['Reserved', figure((client) => (client.reserved == null ? 'the limit is no budget' : count(client.reserved)))],
    ['Debt', figure((client) => (client.debt == null ? 'the limit is no budget' : count(client.debt)))],
    ['Next permit', figure(next)],
    ['Bucket expires', fact((client) => (client.expires_at ? ago(client.expires_at) : 'unused'))],
    ['Bucket', fact((client) => (client.overflow ? 'the shared overflow bucket' : 'its own'))],
    ['Override', fact(override)],
  ]);
}

/** The figures of a client for each rate, while its tier is not known. */
function possibleRates(read) {
  const rates = () => { const client = read(); return client?.rate_from === 'unknown' ? client.rates.map((rate) => ({ ...rate, now: client.now })) : []; };
  const name = (rate) => (rate.tier ?? (rate.default ? 'requests without a number' : 'the largest number')) + (rate.tier && rate.default ? ' (default)' : '');
  const node = table({
    caption: 'Permits of the client with each rate',
    columns: [
      { head: 'Tier', isHead: true, cell: text(name) },
      { head: 'Rate', cell: text((rate) => per(rate.rate, rate.interval_ms)) },
      { head: 'Remaining', kind: 'number', cell: text((rate) => (rate.remaining == null ? '–' : count(rate.remaining))) },
      { head: 'Used', kind: 'number', cell: text((rate) => (rate.used == null ? '–' : count(rate.used))) },
      { head: 'Next permit', kind: 'number', cell: text((rate) => (rate.remaining == null ? '–' : nextPermit(rate))) },
    ],
    rows: () => rates().map((rate) => ({ ...rate, key: name(rate) })),
    empty: '',
  });
  each(() => node.classList.toggle('hidden', rates().length === 0));
  return node;
}

/** The changes of one client. Calls `done` after each. */
function clientActions(client, { route, limit, address, parts, done }) {
  if (!canChange()) return [];
  const what = () => `${client ? clientName(client) : 'all requests'} of ${route}/${limit}`;
  return [
    h('button', { type: 'button', onclick: () => reset({ path: `${address}/client?${parts}`, what: what(), done }) }, 'Reset this client'),
    client && h('details', {}, h('summary', {}, 'Exempt, ban or adjust this client'), overrideForm({ scope: scopeOf(route, limit), client, done })),
  ].filter(Boolean);
}
