// Creates elements, and updates them in place: the focus and the selection of the reader stay. Data becomes text nodes,
// never markup.

import { RECENT, SECONDS, model } from './data.js';

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an element with attributes and children. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

// === Updates ===

let updates = [];

/** Forgets the updates of the last view. */
export function beginView() { updates = []; }

/** Updates the current view. */
export function refresh() { updates.forEach((update) => update()); }

/** Calls a function now and after each event. */
export function each(update) {
  updates.push(update);
  update();
}

/** Creates an element whose text follows the state. */
export function live(read, tag = 'span', attributes = {}) {
  const node = h(tag, attributes);
  each(() => setText(node, read()));
  return node;
}

export function setText(node, text) {
  const value = String(text ?? '');
  if (node.textContent !== value) node.textContent = value;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// === Text ===

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (value) => whole.format(value ?? 0);

export const rate = (value) => (value === 0 ? '0' : value < 10 ? tenths.format(value) : whole.format(value));

export const percent = (share) => `${Math.round(share * 100)} %`;

export function milliseconds(micros) {
  const value = micros / 1000;
  return value < 1 ? `${value.toFixed(2)} ms` : value < 100 ? `${value.toFixed(1)} ms` : `${whole.format(value)} ms`;
}

export function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${power ? tenths.format(value / 1000 ** power) : whole.format(value)} ${units[power]}`;
}

export function interval(ms) {
  const units = [[86400000, 'day'], [3600000, 'hour'], [60000, 'minute'], [1000, 'second'], [1, 'ms']];
  const [size, unit] = units.find(([size]) => ms % size === 0);
  return ms === size ? unit : `${ms / size} ${unit}${unit === 'ms' ? '' : 's'}`;
}

/** Returns a rate, such as `60 per minute`. */
export const per = (permits, ms) => `${count(permits)} per ${interval(ms)}`;

/** Returns how long ago a time of the gateway was, or how far it is in the future. */
export function ago(time) {
  if (!time) return '–';
  const seconds = Math.round((Date.now() - model.skew - new Date(time)) / 1000);
  const size = Math.abs(seconds);
  const text = size < 90 ? `${size} s` : size < 5400 ? `${Math.round(size / 60)} min` : size < 129600 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} d`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** Returns how far a time of the gateway is in the future. */
export function until(time) {
  const words = ago(time);
  return words.startsWith('in ') ? words : 'now';
}

/** Returns `file:line` of a place in the rule file. */
export const place = (location) => (location ? `${location.file ?? 'rule file'}:${location.line}` : '–');

export const nameOf = (route) => route || '(no route)';

/** Returns a text with a capital at its start. */
export const sentence = (words) => words.replace(/^./, (first) => first.toUpperCase());

/** Returns a link to a page of the dashboard. */
export const path = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

// === Cells of tables: each creates a node, and a function that updates it for a row ===

export const text = (read) => () => {
  const node = h('span');
  return { node, update: (row) => setText(node, read(row)) };
};

/** A text that is red and has a mark while something is wrong. */
export const flagged = (read, isWrong) => () => {
  const node = h('span');
  return { node, update: (row) => { setText(node, read(row)); node.classList.toggle('wrong', isWrong(row)); } };
};

export const link = (read, target) => () => {
  const node = h('a');
  return { node, update: (row) => { setText(node, read(row)); setAttribute(node, 'href', target(row)); } };
};

/** A share as a bar with its text; without a share, only the text. */
export const bar = (share, read) => () => {
  const value = svg('rect', { height: 8, class: 'value' });
  const drawing = svg('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('rect', { width: 100, height: 8, class: 'track' }), value);
  const label = h('span');
  const node = h('span', { class: 'barred' }, drawing, label);
  const update = (row) => {
    const part = share(row);
    drawing.classList.toggle('hidden', part == null);
    value.setAttribute('width', String(100 * Math.min(1, part ?? 0)));
    setText(label, read(row));
  };
  return { node, update };
};

/** The last 15 minutes as a small chart. The other cells of the row are its text. */
export const sparkline = (read) => () => {
  const lines = [svg('path', { class: 'line muted' }), svg('path', { class: 'line accent' })];
  const node = svg('svg', { class: 'spark', viewBox: `0 0 ${BINS} 24`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, ...lines);
  const update = (row) => {
    const all = read(row).map(binned);
    const top = Math.max(1e-9, ...all.flat());
    lines.forEach((line, index) => line.setAttribute('d', all[index] ? curve(all[index], top, 24) : ''));
  };
  return { node, update };
};

// === Charts ===

// A bin has the mean of five seconds. Bins begin at multiples of five seconds, so that a chart moves without flicker.
const BIN = 5;
const BINS = SECONDS / BIN;

function binned(values) {
  const bins = [];
  const rest = (model.time % BIN) + 1;
  for (let end = values.length, size = rest; end > 0 && bins.length < BINS; end -= size, size = BIN) {
    const part = values.slice(Math.max(0, end - size), end);
    bins.push(part.reduce((sum, value) => sum + value, 0) / part.length);
  }
  return bins.reverse();
}

function curve(bins, top, height) {
  const y = (value) => (height - 1 - (value / top) * (height - 2)).toFixed(1);
  return bins.map((value, index) => `${index ? 'L' : 'M'}${BINS - bins.length + index} ${y(value)}`).join('');
}

function roundUp(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * size).find((step) => step >= value);
}

/** Returns the mean of the last seconds, as the tiles and tables show it. */
function currentMean(values, counts) {
  const total = (list) => list.slice(-RECENT).reduce((sum, value) => sum + value, 0);
  if (!counts) return total(values) / RECENT;
  return total(counts) ? total(values) / total(counts) : 0;
}

/** Returns the quotients of two lists of sums or means; 0 where nothing was counted. */
const quotients = (sums, counts) => sums.map((sum, index) => (counts[index] ? sum / counts[index] : 0));

/**
 * A chart of the last 15 minutes. `lines` have a name, a style and values; the caption describes them in words. A line with
 * counts `per` shows the values for each count.
 */
export function chart({ title, unit, lines, format = rate }) {
  const height = 120;
  const paths = lines.map(({ style }) => svg('path', { class: `line ${style}` }));
  const grid = [0.5, 60, 119.5].map((y) => svg('line', { x1: 0, x2: BINS, y1: y, y2: y, class: 'grid' }));
  const drawing = svg('svg', { class: 'plot', viewBox: `0 0 ${BINS} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, ...grid, ...paths);
  const [top, middle] = [h('span'), h('span')];
  const legend = lines.map(({ name, style }) => {
    const key = svg('svg', { class: 'key', viewBox: '0 0 20 8', 'aria-hidden': 'true' }, svg('path', { class: `line ${style}`, d: 'M0 4L20 4' }));
    const value = h('span', { class: 'figures' });
    return { value, node: h('li', {}, key, h('span', {}, name), value) };
  });
  each(() => {
    const all = lines.map(({ values, per }) => (per ? quotients(binned(values()), binned(per())) : binned(values())));
    const highest = Math.max(...all.flat(), 0);
    const scale = highest > 0 ? roundUp(highest) : 1;
    all.forEach((bins, index) => {
      paths[index].setAttribute('d', curve(bins, scale, height));
      const now = currentMean(lines[index].values(), lines[index].per?.());
      setText(legend[index].value, `now ${format(now)}, highest ${format(Math.max(now, ...bins))}`);
    });
    setText(top, `${format(scale)} ${unit}`);
    setText(middle, format(scale / 2));
  });
  return h('figure', {},
    h('figcaption', {}, h('h2', {}, title), h('ul', { class: 'legend' }, legend.map(({ node }) => node))),
    h('div', { class: 'frame' }, drawing, h('p', { class: 'scale', 'aria-hidden': 'true' }, top, middle)),
    h('p', { class: 'axis', 'aria-hidden': 'true' }, h('span', {}, '15 min ago'), h('span', {}, '10'), h('span', {}, '5'), h('span', {}, 'now')));
}

/** A list of names and values. Values are text, nodes, or functions that follow the state. */
export function facts(entries) {
  return h('dl', { class: 'facts' }, entries.filter(Boolean).map(([name, value]) => h('div', {}, h('dt', {}, name), typeof value === 'function' ? live(value, 'dd') : h('dd', {}, value))));
}

export const section = (title, ...children) => h('section', {}, h('h2', {}, title), ...children);

/** A state as a word with a mark, so that the colour is not its only sign. */
export function state(read) {
  const node = h('span', { class: 'state' });
  each(() => {
    const [kind, word] = read();
    setText(node, word);
    setAttribute(node, 'data-state', kind);
  });
  return node;
}
