// Shows the page that the hash names, and the state of the connection.

import { connect, model, onChange } from './data.js';
import { beginView, h, refresh, setText } from './draw.js';
import { overview } from './overview.js';
import { limitPage, routePage, storePage } from './details.js';
import { overridesPage } from './changes.js';
import { explainPage } from './explain.js';
import { showProblems } from './problems.js';

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

// === The connection ===

const WORDS = { connecting: 'Connecting', live: 'Live', broken: 'Connection lost, reconnecting', paused: 'Paused' };

const stream = document.getElementById('stream');

function showStatus() {
  setText(stream, WORDS[model.status]);
  stream.dataset.state = model.status;
  document.body.classList.toggle('stale', model.status !== 'live');
  showProblems();
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
