'use strict';
// Small pieces that all charts share: SVG elements, numbers for people, axes, and the read-out that follows pointer and
// arrow keys. The page counts its own failures, so that a test can ask for them.
const page = document.documentElement;
page.dataset.errors = 0;
for (const kind of ['error', 'securitypolicyviolation']) {
  window.addEventListener(kind, () => { page.dataset.errors = Number(page.dataset.errors) + 1; });
}

function svg(name, attributes, parent, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

function html(name, attributes, parent, text) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

const minus = text => text.replace('-', '\u2212');

function scaled(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit + 1 < units.length) { value /= base; ++unit; }
  const text = Number(value.toPrecision(Math.abs(value) >= 1000 ? 4 : 3)).toString();
  return minus(text) + units[unit];
}

const format = {
  number(v) {
    if (v === 0) return '0';
    const size = Math.abs(v);
    if (size >= 1e6 || size < 1e-3) return minus(v.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e'));
    return minus(Number(v.toPrecision(4)).toString());
  },
  percent: v => `${Number((100 * v).toPrecision(3))} %`,
  rate: v => scaled(v, 1000, ['', 'k', 'M', 'G']),
  ms: v => v === 0 ? '0' : (Math.abs(v) >= 1000 ? `${Number((v / 1000).toPrecision(3))} s` : `${Number(v.toPrecision(3))} ms`),
  bytes: v => scaled(v, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB']),
  step: v => v.toLocaleString('en').replace(/,/g, '\u2009'),
};

// Round values (1, 2 or 5 times a power of the base's unit) that cover [low, high] with about `count` steps.
function ticks(low, high, count, base = 10) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, count);
  const power = base ** Math.floor(Math.log(raw) / Math.log(base));
  const sizes = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * sizes.find(size => size * power >= raw * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step + 0);  // + 0: never minus zero
  return list;
}

function log_ticks(low, high) {
  const list = [];
  const wide = Math.log10(high / low) > 2;
  const every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
    if (wide && e % every) continue;
    for (const m of wide ? [1] : [1, 2, 5]) {
      const v = m * 10 ** e;
      if (v >= low * 0.9999 && v <= high * 1.0001) list.push(v);
    }
  }
  return list.length > 1 ? list : ticks(low, high, 4);
}

// A drawing that is made again whenever its width changes.
function on_width(element, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.floor(element.clientWidth);
    if (now === 0 || now === width) return;
    width = now;
    draw(width);
  };
  redraw();
  new ResizeObserver(redraw).observe(element);
}

// Pointer and arrow keys choose a place; `at(x)` reads what is there, `move(direction)` goes to a neighbour.
function follow(plot, { at, move, leave }) {
  plot.addEventListener('pointermove', event => at(event.clientX - plot.getBoundingClientRect().left,
                                                   event.clientY - plot.getBoundingClientRect().top));
  plot.addEventListener('pointerdown', event => at(event.clientX - plot.getBoundingClientRect().left,
                                                   event.clientY - plot.getBoundingClientRect().top));
  plot.addEventListener('pointerleave', leave);
  plot.addEventListener('blur', leave);
  plot.addEventListener('keydown', event => {
    const direction = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (direction === undefined) return;
    event.preventDefault();
    move(direction);
  });
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function legend_item(list, kind, color, text) {
  const item = html('li', {}, list);
  html('i', { class: kind, style: `--c:var(--${color})` }, item, kind === 'cross' ? '\u2715' : '');
  item.append(text);
}
