// Changes: overrides and resets, each with a confirmation and, over TCP, with the token of the operator.

import { api, clientName, isHash, model, readRejected, scopeOf } from './data.js';
import { ago, each, h, section, sentence, text } from './draw.js';
import { table } from './table.js';
import { load } from './clients.js';

// The token is kept for this tab only, and only after the operator has typed it.
const TOKEN = 'tidegate-token';

/** Returns whether the page may have forms for changes. Before the first event, it has none. */
export const canChange = () => ['open', 'token', 'no_tokens'].includes(model.gateway.changes);

/** Returns the lines of a text, without an empty last line. */
export const lines = (text) => text.replace(/\n$/, '').split('\n');

const dialog = document.getElementById('dialog');

/** Asks for a confirmation, and sends a change. Calls `done` with the response. */
function confirmChange({ title, effect, button, asksReason, send, done }) {
  const needsToken = model.gateway.changes === 'token' || model.gateway.changes === 'no_tokens';
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'off', required: true, value: sessionStorage.getItem(TOKEN) ?? '' });
  const reason = h('input', { name: 'reason', maxlength: '256', autocomplete: 'off' });
  const outcome = h('p', { class: 'error', role: 'alert' });
  const confirm = h('button', { class: 'primary' }, button);
  const submit = async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    outcome.textContent = '';
    try {
      const answer = await send({ token: needsToken ? token.value : undefined, reason: reason.value });
      if (needsToken) sessionStorage.setItem(TOKEN, token.value);
      // The operator may have cancelled the dialog, and opened another one.
      if (confirm.isConnected) dialog.close();
      done(answer);
    } catch (error) {
      if (error.status === 401) sessionStorage.removeItem(TOKEN);
      outcome.textContent = error.message;
    }
    confirm.disabled = false;
  };
  dialog.replaceChildren(
    h('h2', { id: 'dialog-title' }, title),
    h('p', {}, effect),
    h('form', { onsubmit: submit },
      asksReason && h('label', {}, 'Reason, for the audit list', reason),
      needsToken && h('label', {}, 'Your token', token),
      model.gateway.changes === 'no_tokens' && h('p', { class: 'hint' }, 'No tokens are configured: set admin: { tokens: { file: FILE } } in the rule file.'),
      outcome,
      h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), confirm)));
  dialog.showModal();
}

/** Resets what a path of the API names. Calls `done` after it. */
export function reset({ path, what, done = () => {} }) {
  confirmChange({
    title: 'Reset permits', effect: sentence(`${what}: permits in use become available again, on all gateways.`),
    button: 'Reset', asksReason: true,
    send: ({ token, reason }) => api(`${path}${path.includes('?') ? '&' : '?'}reason=${encodeURIComponent(reason)}`, { method: 'DELETE', token }),
    done: (answer) => { announce(`Reset: ${answer?.buckets ?? 0} buckets existed.`); done(); },
  });
}

/** Shows the outcome of a change at the top of the page. */
function announce(message) {
  const line = h('p', { class: 'done', role: 'status' }, message, h('button', { type: 'button', class: 'quiet', onclick: () => line.remove() }, 'Dismiss'));
  document.querySelector('.done')?.remove();
  document.getElementById('main').prepend(line);
}

// === Overrides ===

const DURATIONS = [['15m', '15 minutes'], ['1h', '1 hour'], ['8h', '8 hours'], ['1d', '1 day'], ['7d', '7 days'], ['30d', '30 days']];

/** The hint for a field that names a client. */
export const VALUES_HINT = 'A limit whose client is a list needs one value a line, in the order of the list.';

/** The form for an override, optionally of a known client. */
export function overrideForm({ scope = '', client = '', done = () => {} } = {}) {
  const option = ([value, words]) => h('option', { value }, words);
  const kind = isHash(client) ? 'hash' : 'address';
  const action = h('select', { name: 'action' }, [['exempt', 'exempt: limits do not count it'], ['ban', 'ban: reject its requests'], ['adjust', 'adjust: use another rate']].map(option));
  const target = h('select', { name: 'target' }, [['address', 'address or network'], ['client', 'value'], ['hash', 'hash']].map(option));
  const value = h('textarea', { name: 'value', rows: '2', required: true, autocomplete: 'off', spellcheck: 'false' }, client);
  const where = h('input', { name: 'scope', autocomplete: 'off', placeholder: 'all routes', value: scope, list: 'scopes' });
  const duration = h('select', { name: 'for' }, DURATIONS.map(option));
  const multiply = h('input', { name: 'multiply', type: 'number', min: '0.01', step: 'any', value: '2' });
  const reason = h('input', { name: 'reason', required: true, maxlength: '256', autocomplete: 'off' });
  const replace = h('input', { name: 'replace', type: 'checkbox' });
  target.value = kind;
  duration.value = '1h';
  const factor = h('label', { class: 'hidden' }, 'Multiply the rate by', multiply);
  action.addEventListener('change', () => factor.classList.toggle('hidden', action.value !== 'adjust'));
  const scopes = h('datalist', { id: 'scopes' });
  each(() => { if (!scopes.children.length) scopes.append(...model.rules.map((rule) => h('option', { value: scopeOf(rule.route, rule.limit) }))); });

  const submit = (event) => {
    event.preventDefault();
    const values = target.value === 'client' ? lines(value.value) : [value.value.trim()];
    const name = values.map(clientName).join(', ');
    const body = {
      action: action.value, scope: where.value.trim() || null, for: duration.value, reason: reason.value,
      target: { [target.value]: target.value === 'client' ? values : values[0] },
      replace: replace.checked,
    };
    if (action.value === 'adjust') body.multiply = Number(multiply.value);
    confirmChange({
      title: sentence(`${action.value} ${name}`),
      effect: `For ${duration.selectedOptions[0].textContent}, in ${where.value || 'all routes'}, on all gateways.`,
      button: 'Create the override', asksReason: false,
      send: ({ token }) => api('overrides', { method: 'POST', token, body }),
      done: () => { announce(`The override of ${name} is in force.`); done(); },
    });
  };
  return h('form', { class: 'override', onsubmit: submit },
    h('div', { class: 'fields' },
      h('label', {}, 'Action', action), h('label', {}, 'Name the client by', target), h('label', { class: 'grow' }, 'Client', value),
      h('label', {}, 'Scope', where), h('label', {}, 'For', duration), factor, h('label', { class: 'grow' }, 'Reason', reason)),
    scopes,
    h('p', { class: 'hint' }, 'Hashes apply to any scope. Addresses apply to requests, and not to calls of the rate limit service. A value is as the client sends it, and needs a limit as scope. ', VALUES_HINT),
    h('div', { class: 'buttons' }, h('label', { class: 'check' }, replace, 'Replace an override of this client'), h('button', {}, 'Create override')));
}

export function overridesPage() {
  // Overrides and the audit list have only hashes. The list of rejected clients has their values, with `show_clients`.
  load(10000, () => readRejected('rejected?minutes=15').catch(() => { /* the lists show hashes */ }));
  return [h('h1', {}, 'Overrides and audit'), section('Overrides in force', ...overrides()), section('Changes of operators', audit())];
}

function overrides() {
  let found = [];
  let problem = 'Reading the overrides.';
  const read = async () => {
    try {
      [found, problem] = [await api('overrides'), 'No override is in force.'];
    } catch (error) {
      [found, problem] = [[], `The overrides cannot be read: ${error.message}.`];
    }
  };
  load(1000, read);
  const change = (row) => (row.action === 'adjust' ? `adjust: ${row.rate != null ? `rate ${row.rate}` : `rate × ${row.multiply}`}` : row.action);
  const columns = [
    { head: 'Client', isHead: true, cell: text((row) => target(row.target)) },
    { head: 'Action', cell: text(change) },
    { head: 'Scope', cell: text((row) => row.scope ?? 'all routes') },
    { head: 'Ends', kind: 'number', cell: text((row) => ago(row.until)) },
    { head: 'Reason', cell: text((row) => row.reason) },
    { head: 'By', cell: text((row) => row.by) },
  ];
  if (canChange()) columns.push({ head: 'Change', cell: removeCell });
  return [
    table({ caption: 'Overrides', max: 50, search: (row) => JSON.stringify(row), columns, rows: () => found.map((row) => ({ ...row, key: row.id })), empty: () => problem }),
    canChange() && h('h3', {}, 'Create an override'),
    canChange() && overrideForm(),
  ].filter(Boolean);
}

/** Returns the text of a target, such as `{ address: ... }`. */
function target(value) {
  return value && typeof value === 'object' ? Object.values(value).flat().map(clientName).join(', ') : String(value ?? '–');
}

function removeCell() {
  let shown = null;
  const remove = () => confirmChange({
    title: 'Remove an override', effect: `${shown.action} of ${target(shown.target)} ends now, on all gateways.`, button: 'Remove', asksReason: false,
    send: ({ token }) => api(`overrides/${encodeURIComponent(shown.id)}`, { method: 'DELETE', token }),
    done: () => announce('The override has ended.'),
  });
  const node = h('button', { type: 'button', class: 'quiet', onclick: remove }, 'Remove');
  return { node, update: (row) => { shown = row; node.setAttribute('aria-label', `Remove the override of ${target(row.target)}`); } };
}

function audit() {
  let found = [];
  let problem = 'Reading the audit list.';
  load(10000, async () => {
    try {
      [found, problem] = [await api('audit'), 'No operator has changed anything.'];
    } catch (error) {
      [found, problem] = [[], `The audit list cannot be read: ${error.message}.`];
    }
  });
  return table({
    caption: 'Changes, the newest first', max: 50,
    columns: [
      { head: 'Time', isHead: true, cell: text((row) => ago(row.time)) },
      { head: 'Operator', cell: text((row) => row.operator) },
      { head: 'Action', cell: text((row) => row.action) },
      { head: 'Target', cell: text((row) => [row.target, row.client].filter(Boolean).map(clientName).join(', ')) },
      { head: 'Reason', cell: text((row) => row.reason ?? '–') },
      { head: 'Outcome', cell: text((row) => (row.shared ? row.outcome : `${row.outcome}, on this gateway only`)) },
    ],
    rows: () => found.map((row, index) => ({ ...row, key: `${row.time} ${found.length - index}` })),
    empty: () => problem,
  });
}
