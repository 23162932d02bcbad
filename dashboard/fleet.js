// The gateways that share the store. What differs from the others is marked.

import { api } from './data.js';
import { count, flagged, text } from './draw.js';
import { table } from './table.js';
import { load } from './clients.js';

/** A table of the gateways. */
export function fleet() {
  let found = null;
  let problem = 'Loading';
  load(5000, async () => {
    try {
      found = (await api('fleet')).gateways;
    } catch (error) {
      [found, problem] = [null, `The gateways cannot be read: ${error.message}.`];
    }
  });
  const differing = (key, read) => flagged((row) => `${read(row)}${row.differs.includes(key) ? ' (differs)' : ''}`, (row) => row.differs.includes(key));
  return table({
    caption: 'Gateways that share the store, by name', max: 12,
    columns: [
      { head: 'Gateway', isHead: true, cell: text((row) => `${row.name ?? row.key.slice(0, 8)}${row.self ? ' (this)' : ''}`) },
      { head: 'State', cell: flagged(stateOf, (row) => row.ready === false && !row.draining) },
      { head: 'Problems', kind: 'number', cell: flagged((row) => (row.problems == null ? 'unknown' : count(row.problems)), (row) => row.problems > 0) },
      { head: 'Version', cell: differing('version', (row) => row.version ?? 'unknown') },
      { head: 'Rule file', cell: differing('hash', (row) => row.hash?.slice(0, 12) ?? (row.version ? 'no file' : 'unknown')) },
      { head: 'Seen', kind: 'number', cell: text((row) => `${Math.round(row.seen_ms / 1000)} s ago`) },
    ],
    rows: () => (found ?? []).map((row) => ({ ...row, key: row.id ?? 'this' })),
    empty: () => problem,
  });
}

function stateOf({ ready, draining }) {
  if (ready == null) return 'unknown';
  if (draining) return 'draining';
  return ready ? 'ready' : 'not ready';
}
