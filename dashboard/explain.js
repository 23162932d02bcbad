// The form "explain a request": which route matches, and what each limit would decide. It charges nothing.

import { api, clientName, model } from './data.js';
import { count, each, facts, h, path, section, until } from './draw.js';

export function explainPage() {
  const method = h('select', { name: 'method' }, ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'].map((word) => h('option', {}, word)));
  const url = h('input', { name: 'url', required: true, autocomplete: 'off', spellcheck: 'false', value: 'http://api.example/orders?page=1' });
  const peer = h('input', { name: 'peer', autocomplete: 'off', spellcheck: 'false', value: '192.0.2.1' });
  const headers = h('textarea', { name: 'headers', rows: '4', spellcheck: 'false', placeholder: 'X-Api-Key: abc' });
  const result = h('div', { class: 'result', 'aria-live': 'polite' });

  const submit = async (event) => {
    event.preventDefault();
    const written = headers.value.split('\n').filter((line) => line.trim());
    const bad = written.find((line) => !line.includes(':'));
    if (bad) return result.replaceChildren(h('p', { class: 'error' }, `“${bad}” is no header field: write Name: value.`));
    const body = { method: method.value, url: url.value, headers: fields(written), peer: peer.value };
    try {
      const { text, ...answer } = await api('explain', { method: 'POST', body });
      return result.replaceChildren(...verdict(answer), h('details', {},
        h('summary', {}, 'All details'), h('pre', { tabindex: '0', 'aria-label': 'The explanation as text' }, text),
        h('h2', {}, 'As the API returns it'), explained(answer)));
    } catch (error) {
      return result.replaceChildren(h('p', { class: 'error' }, error.message));
    }
  };
  return [
    h('h1', {}, 'Explain a request'),
    h('p', { class: 'hint' }, 'Nothing is forwarded, and no permit is taken.'),
    h('form', { onsubmit: submit },
      h('div', { class: 'fields' }, h('label', {}, 'Method', method), h('label', { class: 'grow' }, 'URL', url), h('label', {}, 'Address of the client', peer)),
      h('label', {}, 'Header fields, one a line', headers),
      h('div', { class: 'buttons' }, h('button', { class: 'primary' }, 'Explain'))),
    result,
    explainCall(),
  ];
}

/** The form "explain a call" of the rate limit service. It is shown if there are domains. */
function explainCall() {
  const domain = h('select', { name: 'domain' });
  const descriptors = h('textarea', { name: 'descriptors', rows: '4', required: true, spellcheck: 'false', placeholder: 'user=alice' });
  const result = h('div', { class: 'result', 'aria-live': 'polite' });
  const submit = async (event) => {
    event.preventDefault();
    const written = descriptors.value.split('\n').filter((line) => line.trim());
    const bad = written.find((line) => !line.split(',').every((entry) => entry.indexOf('=') > 0));
    if (bad) return result.replaceChildren(h('p', { class: 'error' }, `“${bad}” is no descriptor: write KEY=VALUE,KEY=VALUE.`));
    try {
      const body = { domain: domain.value, descriptors: written.map((line) => ({ entries: line.split(',').map(entryOf) })) };
      const { text, admitted, descriptors: found } = await api('explain/call', { method: 'POST', body });
      return result.replaceChildren(h('h2', { class: 'outcome' }, callOutcome(admitted)), h('ul', { class: 'tree' }, found.map((row) => descriptorOf(body.domain, row))),
        h('details', {}, h('summary', {}, 'All details'), h('pre', { tabindex: '0', 'aria-label': 'The explanation as text' }, text)));
    } catch (error) {
      return result.replaceChildren(h('p', { class: 'error' }, error.message));
    }
  };
  const form = h('form', { class: 'call', onsubmit: submit },
    h('div', { class: 'fields' }, h('label', {}, 'Domain', domain), h('label', { class: 'grow' }, 'Descriptors, one a line: KEY=VALUE,KEY=VALUE', descriptors)),
    h('div', { class: 'buttons' }, h('button', {}, 'Explain the call')));
  const shown = section('Explain a call of the rate limit service', form, result);
  each(() => {
    const names = [...new Set(model.rules.map((rule) => rule.domain).filter((name) => name != null))];
    shown.classList.toggle('hidden', names.length === 0);
    if (names.join('\n') !== [...domain.children].map((option) => option.textContent).join('\n')) domain.replaceChildren(...names.map((name) => h('option', {}, name)));
  });
  return shown;
}

function entryOf(text) {
  const at = text.indexOf('=');
  return { key: text.slice(0, at), value: text.slice(at + 1) };
}

const callOutcome = (admitted) => (admitted === null ? 'Unknown: the store does not decide.'
  : admitted ? 'Passes: its limits would grant the call now.' : 'Over the limit: a limit would not grant the call now.');

/** A descriptor of a call, with its limit. */
function descriptorOf(domain, { descriptor, limit, over_limit: isOver, client, remaining, next_permit_at: next, error, override }) {
  const { route } = model.rules.find((rule) => rule.domain === domain) ?? {};
  const state = error ? `the store did not answer: ${error}` : isOver ? `over the limit, ${next ? `grants it ${until(next)}` : 'never grants it'}`
    : remaining == null ? 'not counted' : `${count(remaining)} ${remaining === 1 ? 'permit remains' : 'permits remain'}`;
  return h('li', {}, `${descriptor}: `, limit && h('a', { href: path('limit', route, limit) }, `${route}/${limit}`), limit ? `, ${state}.` : 'no limit.',
    h('div', {}, client && h('span', {}, `Client: ${clientName(client)}`), override && h('span', {}, `Override: ${inForce(override)}`)));
}

/** Returns the values of header lines by name. A name may have several lines. */
function fields(lines) {
  const found = new Map();
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).trim().toLowerCase();
    found.set(name, [...(found.get(name) ?? []), line.slice(colon + 1).trim()]);
  }
  return Object.fromEntries(found);
}

/** The outcome, the route, the client and the decision of each limit. */
function verdict({ admitted, status, reason, route, client, limits }) {
  const outcome = status ? `Answered with ${status}: ${reason}.` : admitted === null ? 'Unknown: the store does not decide.'
    : admitted ? 'Admitted: its limits would grant the request now.' : 'Rejected: a limit would not grant the request now.';
  return [
    h('h2', { class: 'outcome' }, outcome),
    facts([
      ['Route', route ? h('a', { href: path('route', route.name) }, route.name) : 'none'],
      ['Upstream', route?.upstream ?? '–'],
      ['Address of the client', client?.address ?? '–'],
    ]),
    limits.length > 0 && h('ul', { class: 'tree' }, limits.map((limit) => h('li', {},
      h('a', { href: path('limit', route.name, limit.limit) }, `${route.name}/${limit.limit}`), `${limit.shadow ? ' (shadow)' : ''}: ${decision(limit)}.`,
      h('div', {}, limit.client && h('span', {}, `Client: ${clientName(limit.client)}`), limit.override && h('span', {}, `Override: ${inForce(limit.override)}`))))),
  ].filter(Boolean);
}

/** Describes what a limit does with the request. */
function decision({ check, shadow, reason, error, admitted, remaining, next_permit_at: next }) {
  const rejects = shadow ? 'would reject the request' : 'rejects the request';
  if (check === 'skip') return `does not count the request${reason ? `: ${reason}` : ''}`;
  if (check === 'deny') return `${rejects}${reason ? `: ${reason}` : ''}`;
  if (error) return `the store did not answer: ${error}`;
  if (admitted === null) return 'not evaluated';
  if (admitted) return `grants the request, ${count(remaining)} ${remaining === 1 ? 'permit remains' : 'permits remain'}`;
  return `${rejects}, ${next ? `grants it ${until(next)}` : 'never grants it'}`;
}

function inForce({ action, until: end, reason }) {
  return `${action}, ends ${until(end)}${reason ? `: ${reason}` : ''}`;
}

/** Shows a value of JSON as nested lists. */
function explained(value) {
  if (value === null) return h('span', { class: 'none' }, '–');
  if (Array.isArray(value)) return value.length ? h('ul', { class: 'tree' }, value.map((item) => h('li', {}, explained(item)))) : h('span', { class: 'none' }, 'none');
  if (typeof value !== 'object') return h('span', {}, String(value));
  return h('dl', { class: 'tree' }, Object.entries(value).map(([key, item]) => h('div', {}, h('dt', {}, key.replaceAll('_', ' ')), h('dd', {}, explained(item)))));
}
