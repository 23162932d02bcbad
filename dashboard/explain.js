// The form "explain a request": which route matches, and what each limit would decide. It charges nothing.

import { api } from './data.js';
import { h } from './draw.js';

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
      return result.replaceChildren(
        h('h2', {}, 'The gateway would do this'), explained(answer),
        h('h2', {}, 'As text'), h('pre', { tabindex: '0', 'aria-label': 'The explanation as text' }, text));
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
  ];
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

/** Shows a value of JSON as nested lists. */
function explained(value) {
  if (value === null) return h('span', { class: 'none' }, '–');
  if (Array.isArray(value)) return value.length ? h('ul', { class: 'tree' }, value.map((item) => h('li', {}, explained(item)))) : h('span', { class: 'none' }, 'none');
  if (typeof value !== 'object') return h('span', {}, String(value));
  return h('dl', { class: 'tree' }, Object.entries(value).map(([key, item]) => h('div', {}, h('dt', {}, key.replaceAll('_', ' ')), h('dd', {}, explained(item)))));
}
