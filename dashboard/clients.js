// The clients that are rejected most, and those with the most requests.

import { api, clientName, limitKey, model, readRejected } from './data.js';
import { ago, bytes, count, each, h, link, nameOf, path, place, setText, text } from './draw.js';
import { table } from './table.js';

/** Calls a function now, and again while its view is shown. */
export function load(pause, read) {
  let last = 0;
  each(() => {
    if (Date.now() - last < pause || model.status !== 'live') return;
    last = Date.now();
    read();
  });
}

// === Rejected clients ===

// What rejects requests, other than limits.
const CAUSES = { concurrency: 'concurrency', not_identified: 'credentials', not_allowed: 'permission', banned: 'ban' };

const rejectedBy = ({ route, limit, cause }) => (limit == null ? `${nameOf(route)}: ${CAUSES[cause] ?? cause}` : limitKey(route, limit));

const pageOf = ({ route, limit }) => (limit == null ? path('route', route) : path('limit', route, limit));

/** A table of the clients that are rejected most, of the rows that `isShown` accepts. */
export function rejected(address, max = 10, isShown = () => true) {
  let found = null;
  let problem = 'Reading the rejected clients.';
  load(5000, async () => {
    try {
      found = await readRejected(address);
    } catch (error) {
      [found, problem] = [null, `The rejected clients cannot be read: ${error.message}.`];
    }
  });
  return table({
    caption: 'Clients rejected most in the last 5 minutes', max,
    search: (row) => `${row.client ? clientName(row.client) : 'all clients'} ${row.client ?? ''} ${rejectedBy(row)}`,
    columns: [
      { head: 'Client', isHead: true, cell: clientCell },
      { head: 'Rejected by', cell: link(rejectedBy, pageOf) },
      { head: 'Rejected', kind: 'number', cell: text((row) => atMost(row.count, row.error)) },
      { head: 'Rule', cell: text((row) => place(row.location)) },
      { head: 'Since', kind: 'number', cell: text((row) => ago(row.since)) },
      { head: 'Last', kind: 'number', cell: text((row) => ago(row.last)) },
    ],
    rows: () => (found ?? []).filter(isShown).map((row) => ({ ...row, key: `${row.route}/${row.limit ?? `/${row.cause}`}/${row.client}` })),
    empty: () => (found ? 'No client was rejected in the last 5 minutes.' : problem),
  });
}

function clientCell() {
  const shown = h('a', { class: 'client' });
  const update = (row) => {
    setText(shown, row.client ? clientName(row.client) : 'all clients');
    shown.title = row.client ?? '';
    shown.href = pageOf(row) + (row.client && row.limit != null ? `?client=${encodeURIComponent(row.client)}` : '');
  };
  return { node: shown, update };
}

/** A count of a sketch, whose error makes it too high. */
const atMost = (value, error, format = count) => `${error ? '≤ ' : ''}${format(value)}`;

// === Talkers ===

const OFF = 'Off. `talkers: true` in `admin` of the rule file counts the requests of each client.';

/** A table of the clients with the most requests, rejected or not. */
export function talkers() {
  let list = null;
  let by = 'requests';
  let problem = 'Reading the clients.';
  const read = async () => {
    try {
      list = await api(`talkers?minutes=5&by=${by}`);
    } catch (error) {
      [list, problem] = [null, `The clients cannot be read: ${error.message}.`];
    }
  };
  load(5000, read);
  const options = ['requests', 'bytes', 'permits'].map((name) => h('option', { value: name }, name));
  const select = h('select', { onchange: () => { by = select.value; read(); } }, options);
  const order = h('label', { class: 'order' }, 'Sorted by', select);
  each(() => order.classList.toggle('hidden', !list?.clients.length));
  const shown = table({
    caption: 'Clients with the most requests in the last 5 minutes', max: 10,
    search: (row) => row.client,
    columns: [
      { head: 'Client', isHead: true, cell: text((row) => row.client) },
      { head: 'Requests', kind: 'number', cell: text((row) => atMost(row.requests, row.requests_error)) },
      { head: 'Bytes', kind: 'number', cell: text((row) => atMost(row.bytes, row.bytes_error, bytes)) },
      { head: 'Permits', kind: 'number', cell: text((row) => atMost(row.permits, row.permits_error)) },
    ],
    rows: () => (list?.clients ?? []).map((row) => ({ ...row, key: row.client })),
    empty: () => (!list ? problem : list.enabled ? 'No client sent a request in the last 5 minutes.' : OFF),
  });
  return h('div', {}, order, shown);
}
