// Tables with a search field and pages. Rows are updated in place: the focus and the selection of the reader stay.

import { each, h, setText } from './draw.js';

/**
 * A table whose rows have keys. Rows move only while the reader neither points at the table nor has the focus in it. `max` is
 * the number of rows of a page, and `search` returns the text of a row that the reader can search.
 */
export function table({ caption, columns, rows, empty, max = Infinity, search }) {
  const body = h('tbody');
  const heads = columns.map((column) => h('th', { scope: 'col', class: column.kind }, column.head));
  const title = h('caption', {}, caption);
  const node = h('table', {}, title, h('thead', {}, h('tr', {}, heads)), body);
  const scroll = h('div', { class: 'scroll' }, node);
  const nothing = h('p', { class: 'empty' });
  const pages = pager({ caption, max, search, onchange: () => update(true) });
  const known = new Map();

  function create() {
    const cells = columns.map((column) => column.cell());
    // A narrow page shows each row as a block, with the heads of the columns as labels.
    const items = cells.map(({ node }, index) => {
      const { isHead, kind, head } = columns[index];
      return isHead ? h('th', { scope: 'row', class: kind }, node) : h('td', { class: kind, 'data-label': head }, node);
    });
    return { tr: h('tr', {}, items), update: (row) => cells.forEach((cell) => cell.update(row)) };
  }

  function update(isAsked) {
    const all = rows();
    const shown = pages.select(all);
    const keys = new Set(shown.map((row) => row.key));
    for (const [key, { tr }] of known) {
      if (!keys.has(key)) { tr.remove(); known.delete(key); }
    }
    const isBusy = !isAsked && (scroll.matches(':hover') || scroll.contains(document.activeElement));
    shown.forEach((row, index) => {
      const isNew = !known.has(row.key);
      if (isNew) known.set(row.key, create());
      const { tr, update } = known.get(row.key);
      if (isNew || (!isBusy && body.children[index] !== tr)) body.insertBefore(tr, body.children[index] ?? null);
      update(row);
    });
    scroll.classList.toggle('hidden', shown.length === 0);
    nothing.classList.toggle('hidden', shown.length > 0);
    setText(nothing, all.length > 0 ? 'No row has this text.' : typeof empty === 'function' ? empty() : empty);
  }
  each(() => update(false));
  return h('div', { class: 'tabled' }, pages.field, scroll, nothing, pages.buttons);
}

/** The search field and the buttons of a table. They are shown if the rows need more than one page. */
function pager({ caption, max, search, onchange }) {
  let [page, query] = [0, ''];
  const turn = (step) => () => { page += step; onchange(); };
  const input = h('input', { type: 'search', placeholder: 'Search', 'aria-label': `Search: ${caption}`, oninput: () => { [page, query] = [0, input.value.trim().toLowerCase()]; onchange(); } });
  const field = h('div', { class: 'search' }, input);
  const previous = h('button', { type: 'button', class: 'quiet', 'aria-label': `Previous page: ${caption}`, onclick: turn(-1) }, 'Previous');
  const next = h('button', { type: 'button', class: 'quiet', 'aria-label': `Next page: ${caption}`, onclick: turn(1) }, 'Next');
  const position = h('span', { class: 'detail' });
  const buttons = h('div', { class: 'pages' }, previous, position, next);

  /** Returns the rows of the shown page. */
  function select(all) {
    const found = query ? all.filter((row) => search(row).toLowerCase().includes(query)) : all;
    page = Math.max(0, Math.min(page, Math.ceil(found.length / max) - 1));
    const begin = page === 0 ? 0 : page * max; // `max` may be infinite
    const shown = found.slice(begin, begin + max);
    field.classList.toggle('hidden', !search || (all.length <= max && !query));
    buttons.classList.toggle('hidden', found.length <= max);
    [previous.disabled, next.disabled] = [page === 0, begin + shown.length >= found.length];
    setText(position, `${begin + 1} to ${begin + shown.length} of ${found.length}`);
    return shown;
  }
  return { field, buttons, select };
}
