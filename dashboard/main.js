// Shows the page that the hash names, and the state of the connection.

import { connect, model, onChange } from './data.js';
import { beginView, h, refresh, sentence, setText } from './draw.js';
import { overview } from './overview.js';
import { limitPage, routePage, storePage } from './details.js';
import { overridesPage } from './changes.js';
import { explainPage } from './explain.js';

const PAGES = {
  '': ['Overview', overview],
  limit: ['Limit', limitPage],
  route: ['Route', routePage],
  store: ['Store', storePage],
  overrides: ['Overrides', overridesPage],
  explain: ['Explain a request', explainPage],
};

const main = document.getElementById('main');

/** Shows the page of the hash: `#/PAGE/NAME/NAME?KEY=VALUE`. */
function show(isFirst) {
  if (location.hash && !location.hash.startsWith('#/')) return;
  const [address, query] = location.hash.slice(2).split('?');
  const [page, ...names] = address.split('/').map(decoded);
  const [title, build] = Object.hasOwn(PAGES, page) ? PAGES[page] : ['Not found', () => [h('h1', {}, 'Not found'), h('p', {}, h('a', { href: '#/' }, 'Overview'))]];
  beginView();
  // Before the first event, the pages would state that there are no requests, limits or upstreams.
  const isLoading = !model.ready && build !== explainPage;
  main.replaceChildren(...(isLoading ? [h('p', { class: 'empty' }, 'Loading')] : build(...names, new URLSearchParams(query))));
  document.title = `${names.length ? names.join('/') : title} · Tidegate`;
  for (const item of document.querySelectorAll('nav a')) {
    if (item.getAttribute('href') === `#/${page}`) item.setAttribute('aria-current', 'page');
    else item.removeAttribute('aria-current');
  }
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.focus();
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// === The connection and the alerts ===

const WORDS = { connecting: 'Connecting', live: 'Live', broken: 'Connection lost, reconnecting', paused: 'Paused' };

const stream = document.getElementById('stream');
const alerts = document.getElementById('alerts');
let shownAlerts = '';

function showStatus() {
  setText(stream, WORDS[model.status]);
  stream.dataset.state = model.status;
  document.body.classList.toggle('stale', model.status !== 'live');
  const found = currentAlerts();
  // Unchanged alerts are not announced again.
  const key = JSON.stringify(found);
  if (key === shownAlerts) return;
  shownAlerts = key;
  alerts.replaceChildren(...found.map(({ title, text, items }) => h('div', { class: 'alert' }, h('p', {}, h('strong', {}, title), ' ', text), items && h('ul', {}, items.map(problem)))));
}

function currentAlerts() {
  const found = [];
  const { config, store, gateway } = model;
  if (model.status === 'broken') {
    found.push({ title: 'The gateway does not respond.', text: model.ready ? 'The page shows its last state, and connects again by itself.' : 'It may have ended, or 32 pages are open already. The page tries again by itself.' });
  }
  if (!model.ready) return found;
  if (gateway.draining) found.push({ title: 'The gateway drains.', text: 'It accepts no new connections, and ends when its requests have finished.' });
  const teams = [...new Set(config.errors.map(({ team }) => team).filter(Boolean))];
  if (teams.length) {
    found.push({ title: `The rules of ${teams.join(', ')} are invalid.`, text: 'Their last valid versions stay in force, and all other changes apply.', items: config.errors });
  } else if (config.error_count) {
    found.push({ title: `The rule file was rejected with ${config.error_count} ${config.error_count === 1 ? 'error' : 'errors'}.`, text: 'The previous rules stay in force.', items: config.errors });
  }
  if (store.outage) found.push({ title: 'The store is unreachable.', text: `${sentence(store.outage)}. Limits follow their \`on_store_failure\`.` });
  if (model.truncated) found.push({ title: 'Not everything is shown.', text: 'Only the first 64 routes, 256 limits and 32 upstreams with traffic have a history.' });
  return found;
}

function problem({ file, line, column, message, help }) {
  const at = [file, line, column].filter((part) => part != null).join(':');
  return h('li', {}, h('code', {}, at), ' ', message, help && h('span', { class: 'help' }, ` Help: ${help}`));
}

// How the shown view makes changes: its forms depend on it.
let shownChanges;

onChange(() => {
  showStatus();
  if (!model.ready) return;
  if (shownChanges === model.gateway.changes) {
    refresh();
  } else {
    shownChanges = model.gateway.changes;
    show(true);
  }
});
window.addEventListener('hashchange', () => show(false));
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
show(true);
showStatus();
connect();
// Times such as "12 s ago" grow while the stream is broken.
setInterval(() => { if (model.ready && model.status !== 'live') refresh(); }, 5000);
