// The alerts at the top of each page: one box with all that is wrong, and notes about the gateway and the page.

import { model } from './data.js';
import { h, sentence } from './draw.js';

// The problems that are shown at once. The others are in a list that opens.
const MAX_SHOWN = 4;

const KINDS = {
  store: 'Store', clock: 'Clock', rule_file: 'Rule file', team_file: 'Team', upstream: 'Upstream', target: 'Target',
  certificate: 'Certificate', crl: 'Revocation lists', ocsp: 'OCSP response', api_keys: 'API keys', key_set: 'Key set',
  users: 'Users', file_watch: 'Files', control_plane: 'Control plane',
};

const alerts = document.getElementById('alerts');
const times = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' });
let shown = '[[],[]]';

/** Shows what is wrong now. */
export function showProblems() {
  const [problems, notes] = [currentProblems(), currentNotes()];
  // Unchanged alerts are not announced again.
  const key = JSON.stringify([problems, notes]);
  if (key === shown) return;
  shown = key;
  const isOpen = alerts.querySelector('details')?.open;
  alerts.replaceChildren(...box(problems, isOpen), ...notes.map(note));
}

function currentProblems() {
  const found = [];
  if (model.status === 'broken') {
    const message = model.ready ? 'The page shows its last state, and connects again by itself.' : 'It may have ended, or 32 pages are open already. The page tries again by itself.';
    found.push({ title: 'The gateway does not respond', message });
  }
  for (const problem of model.problems) {
    found.push({ ...problem, title: KINDS[problem.kind] ?? sentence(problem.kind), errors: errorsOf(problem) });
  }
  return found;
}

/** Returns the errors of the rule file that a problem is about. An event has the first 20 of all. */
function errorsOf({ kind, subject }) {
  const { errors } = model.config;
  if (kind === 'rule_file') return errors.filter(({ file, team }) => !team && file === subject);
  return kind === 'team_file' ? errors.filter(({ team }) => team === subject) : [];
}

function currentNotes() {
  const found = [];
  if (!model.ready) return found;
  if (model.gateway.draining) found.push('The gateway drains. It accepts no new connections, and ends when its requests have finished.');
  if (model.truncated) found.push('The first 64 routes, 256 limits and 32 upstreams with traffic have a history of 15 minutes, the others of one minute.');
  return found;
}

function box(problems, isOpen) {
  if (!problems.length) return [];
  const count = Math.max(model.problem_count, problems.length);
  const [first, more] = [problems.slice(0, MAX_SHOWN), problems.slice(MAX_SHOWN)];
  const missing = count - problems.length;
  return [h('section', { class: 'alert', 'aria-label': 'Problems' },
    h('h2', {}, count === 1 ? '1 problem' : `${count} problems`),
    h('ul', {}, first.map(item)),
    more.length > 0 && h('details', { open: isOpen }, h('summary', {}, `Show ${count - first.length} more`), h('ul', {}, more.map(item)),
      missing > 0 && h('p', {}, `${missing} others are in the list of `, h('code', {}, 'tidegate status'), '.')))];
}

function item({ title, subject, message, since, errors = [] }) {
  return h('li', {}, h('strong', {}, title), subject && [' ', h('code', {}, subject)], ' ', errors.length ? summary(message, errors.length) : message,
    since && h('span', { class: 'help' }, ' since ', h('time', { datetime: since }, times.format(new Date(since)))),
    errors.length > 0 && h('ul', {}, errors.map(ruleError)));
}

/** Returns a message with the number of errors instead of the first one, which the list below it has. */
const summary = (message, count) => `${message.split(': ')[0]}, ${count} ${count === 1 ? 'error' : 'errors'}`;

function ruleError({ file, line, column, message, help }) {
  const at = [file, line, column].filter((part) => part != null).join(':');
  return h('li', {}, h('code', {}, at), ' ', message, help && h('span', { class: 'help' }, ` Help: ${help}`));
}

function note(words) {
  return h('p', { class: 'note' }, words);
}
