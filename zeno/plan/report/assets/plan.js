// Bars of a plan: one row for each setting, stacked by purpose, with the limit where there is one. The card that follows the
// pointer (or the arrow keys) has the numbers of a row.
const plan = JSON.parse(document.getElementById('report-data').textContent);
const sum = values => values.reduce((a, b) => a + b, 0);

function draw_tier(figure, tier, index) {
  const plot = figure.querySelector('.plot'), readout = figure.querySelector('.readout'), controls = figure.querySelector('.controls');
  const hint = 'Point at a bar, or use the arrow keys, to read its numbers.';
  // What is next to nothing beside the others (the tokens of a step on the host) is left to the table.
  const largest = Math.max(...plan.rows.map(row => sum(row.bytes[index])));
  const has = plan.rows.filter(row => sum(row.bytes[index]) > 0.002 * largest);
  const used = plan.purposes.map((name, p) => ({ name, p })).filter(({ p }) => has.some(row => row.bytes[index][p] > 0));
  for (const { name } of used) legend_item(figure.querySelector('.legend'), '', name, name);
  const tip = html('div', { class: 'tip', hidden: '' }, plot);
  let rows = [], picked = null, pick = null, high = 1, row_height = 0, top = 0;

  const box = (name, text) => {
    const label = html('label', {}, controls), input = html('input', { type: 'checkbox', name }, label);
    label.append(text);
    input.addEventListener('change', () => { choose(); draw(Math.floor(plot.clientWidth)); });
    return input;
  };
  const all = has.some(row => !row.best) ? box('all', 'every setting') : null;
  const fitting = plan.limited && has.some(row => !row.fits) && has.some(row => row.fits) ? box('fits', 'only what fits') : null;

  function choose() {
    rows = has.filter(row => (row.best || all?.checked) && (row.fits || !fitting?.checked));
    if (rows.length === 0) rows = has.filter(row => row.fits);
    const most = Math.max(1, ...rows.map(row => sum(row.bytes[index])));
    // What is far beyond the limit would flatten the others: its bar is cut. A limit far above all is not shown.
    const near = tier.limit > 0 && tier.limit <= 3 * most;
    high = near ? clamp(most, 1.05 * tier.limit, 1.3 * tier.limit) : most;
    picked = null;
  }

  function draw(width) {
    const narrow = width < 860, tiny = width < 480, m = { left: narrow ? 0 : 400, right: 84, top: 22 };
    const bar = 18, label = tiny ? 33 : narrow ? 18 : 0;
    row_height = bar + label + 10;
    top = m.top;
    const across = width - m.left - m.right, height = m.top + rows.length * row_height + 4;
    const px = v => m.left + v / high * across;
    plot.replaceChildren(tip);
    const root = svg('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${tier.name} memory of ${rows.length} settings` }, plot);
    const limit = tier.limit > 0 && tier.limit <= high ? px(tier.limit) : -Infinity;
    for (const v of ticks(0, high, across / 130, 1024)) {
      svg('line', { class: 'gridline', x1: px(v), x2: px(v), y1: m.top, y2: height }, root);
      if (px(v) < width - m.right - 30 && Math.abs(px(v) - limit) > 80) svg('text', { x: px(v), y: 13, 'text-anchor': v ? 'middle' : 'start' }, root, format.bytes(v));
    }
    pick = svg('rect', { class: 'pick', x: 0, width, height: row_height, visibility: 'hidden' }, root);
    if (limit > 0) {
      svg('line', { class: 'limit', x1: limit, x2: limit, y1: m.top - 4, y2: height }, root);
      svg('text', { class: 'limit_name', x: limit, y: 13, 'text-anchor': 'middle' }, root, `limit ${format.bytes(tier.limit)}`);
    }
    rows.forEach((row, r) => draw_row(root, row, { m, across, bar, narrow, tiny, px, y: m.top + r * row_height + 5 + label }));
    show(picked);
  }

  function draw_row(root, row, { m, across, bar, narrow, tiny, px, y }) {
    const total = sum(row.bytes[index]), cut = total > high * 1.000001;
    const group = svg('g', { class: row.fits ? 'row' : 'row misfit' }, root);
    const text = svg('text', { class: 'name', x: 0, y: tiny ? y - 20 : narrow ? y - 5 : y + bar - 5 }, group, row.label);
    svg('tspan', tiny ? { class: 'detail', x: 0, dy: 15 } : { class: 'detail', dx: 8 }, text, row.detail);
    let below = 0;
    for (const { name, p } of used) {
      const from = px(Math.min(below, high)), to = px(Math.min(below + row.bytes[index][p], high));
      below += row.bytes[index][p];
      if (to - from < 0.05) continue;
      svg('rect', { class: 'bar', style: `--c:var(--${name})`, x: from.toFixed(2), y, height: bar, width: Math.max(0.4, to - from - (to - from > 3 ? 1 : 0)).toFixed(2) }, group);
    }
    const end = m.left + Math.min(1, total / high) * across;
    if (cut) svg('path', { class: 'cut', d: `M${end - 9} ${y - 2}l5 ${bar / 2 + 2}l-5 ${bar / 2 + 2}h5l5 ${-bar / 2 - 2}l-5 ${-bar / 2 - 2}z` }, group);
    svg('text', { class: 'value', x: end + 6, y: y + bar - 5 }, group, format.bytes(total) + (plan.limited && !row.fits ? ' \u2715' : ''));
  }

  function show(r, x = null) {
    picked = r;
    readout.classList.toggle('soft', r === null);
    tip.hidden = r === null || x === null;
    if (r === null) { readout.textContent = hint; pick.setAttribute('visibility', 'hidden'); return; }
    const row = rows[r], total = sum(row.bytes[index]);
    pick.setAttribute('y', top + r * row_height);
    pick.setAttribute('visibility', 'visible');
    const parts = used.filter(({ p }) => row.bytes[index][p] > 0).map(({ name, p }) => [name, row.bytes[index][p]]);
    readout.textContent = `${row.label}, ${row.detail}: ${format.bytes(total)}  \u00b7  ` + parts.map(([name, bytes]) => `${name} ${format.bytes(bytes)}`).join('  \u00b7  ');
    if (x === null) return;
    tip.replaceChildren();
    html('b', {}, tip, `${row.label}`);
    html('div', { class: 'soft' }, tip, row.detail + (plan.limited ? (row.fits ? ', fits' : ', does not fit') : ''));
    const list = html('ul', {}, tip);
    for (const [name, bytes] of parts) {
      const item = html('li', {}, list);
      html('i', { style: `--c:var(--${name})` }, item);
      html('span', {}, item, name);
      html('span', {}, item, format.bytes(bytes));
    }
    const last = html('li', { class: 'total' }, list);
    html('i', {}, last);
    html('span', {}, last, 'total');
    html('span', {}, last, format.bytes(total));
    const below = top + (r + 1) * row_height + 6, above = top + r * row_height - tip.offsetHeight - 6;
    tip.style.left = `${clamp(x + 14, 0, plot.clientWidth - tip.offsetWidth)}px`;
    tip.style.top = `${below + tip.offsetHeight > plot.clientHeight && above > 0 ? above : below}px`;
  }

  const row_at = y => clamp(Math.floor((y - top) / row_height), 0, rows.length - 1);
  follow(plot, {
    at: (x, y) => show(row_at(y), x),
    move: by => show(clamp((picked === null ? (by > 0 ? -1 : rows.length) : picked) + by, 0, rows.length - 1)),
    leave: () => show(null),
  });
  choose();
  on_width(plot, draw);
}

plan.tiers.forEach((tier, index) => {
  const figure = document.getElementById(`plan-${tier.name}`);
  if (figure) draw_tier(figure, tier, index);
});
page.dataset.ready = 1;
