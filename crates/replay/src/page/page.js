
// Moves the line of each sorted curve, and shows the counts of the rate.
const limits = JSON.parse(document.getElementById('data').textContent);
const whole = new Intl.NumberFormat('en');

function percent(part, of) {
  const value = (part / Math.max(1, of)) * 100;
  return `${value.toFixed(part === 0 || value >= 10 ? 0 : 2)} %`;
}

for (const [id, { interval, subject, count, permits, points }] of Object.entries(limits)) {
  const find = (part) => document.getElementById(`${id}-${part}`);
  const input = find('rate');
  const update = () => {
    const [rate, above, beyond, isAbout, y, x] = points[input.value];
    const share = (part, of) => `${isAbout ? 'about ' : ''}${whole.format(part)} (${percent(part, of)})`;
    const shown = `${whole.format(rate)} per ${interval}`;
    find('shown').textContent = shown;
    find('above').textContent = share(above, count);
    find('permits').textContent = share(beyond, permits);
    input.setAttribute('aria-valuetext', `${shown}: ${share(above, count)} ${subject}, ${share(beyond, permits)} requests above it`);
    const set = (part, values) => Object.entries(values).forEach(([name, value]) => find(part).setAttribute(name, value));
    set('over', { height: y });
    set('across', { y1: y, y2: y });
    set('down', { x1: x, x2: x, y1: y });
  };
  input.addEventListener('input', update);
  input.disabled = false;
  update();
}
