// Memory of every rank: the plan, stacked by purpose, and beside it the most that was in use.
function draw_memory(figure, tier, limit) {
  const plot = figure.querySelector('.plot'), readout = figure.querySelector('.readout');
  const list = figure.querySelector('.legend');
  const ranks = tier.ranks;
  const color = purpose => `--c:var(--${purpose})`;
  const sum = values => values.reduce((a, b) => a + b, 0);
  const tallest = Math.max(1, ...ranks.map(rank => Math.max(sum(rank.planned), sum(rank.peak))));
  // A limit far above the bars would flatten them: it is named instead of drawn.
  const shown = limit > 0 && limit <= 3 * tallest ? limit : 0;
  const high = Math.max(tallest, shown) * 1.06;
  const hint = 'Point at a rank, or use the arrow keys, to read its numbers.';
  let picked = null, pick = null, slot = 0, left = 0;

  function draw(width) {
    const height = tier.name === 'device' ? 280 : 170, m = { left: 74, right: 12, top: 18, bottom: 30 };
    const across = width - m.left - m.right, down = height - m.top - m.bottom;
    const py = v => m.top + (1 - v / high) * down;
    slot = across / ranks.length;
    left = m.left;
    const pairs = slot >= 10;  // room for two bars; else the plan is a line above the peak
    const bar = pairs ? Math.min(72, (slot - Math.min(slot * 0.2, 28)) / 2) : slot;
    draw_legend(pairs);
    plot.replaceChildren();
    const root = svg('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': tier.description }, plot);
    for (const v of ticks(0, high, height / 55, 1024)) {
      svg('line', { class: 'gridline', x1: m.left, x2: width - m.right, y1: py(v), y2: py(v) }, root);
      svg('text', { x: m.left - 8, y: py(v) + 4, 'text-anchor': 'end' }, root, format.bytes(v));
    }
    pick = svg('rect', { class: 'pick', y: m.top, height: down, width: slot, visibility: 'hidden' }, root);
    const every = Math.ceil(ranks.length * 46 / across);
    ranks.forEach((rank, r) => {
      const middle = m.left + (r + 0.5) * slot;
      if (pairs) stack(root, rank.planned, middle - bar, bar, py, 'planned');
      stack(root, rank.peak, pairs ? middle : middle - bar / 2, bar, py, 'peak');
      const plan = py(sum(rank.planned));
      if (!pairs) svg('line', { class: 'plan', x1: middle - bar / 2, x2: middle + bar / 2, y1: plan, y2: plan }, root);
      if (r % every === 0) {
        svg('text', { x: middle, y: height - 10, 'text-anchor': 'middle' }, root, every > 1 || slot < 60 ? r : `rank ${r}`);
      }
    });
    svg('line', { class: 'axisline', x1: m.left, x2: width - m.right, y1: py(0), y2: py(0) }, root);
    if (shown) {
      svg('line', { class: 'limit', x1: m.left, x2: width - m.right, y1: py(shown), y2: py(shown) }, root);
      svg('text', { x: width - m.right, y: py(shown) - 5, 'text-anchor': 'end' }, root, `limit ${format.bytes(shown)}`);
    }
    show(picked);
  }

  function draw_legend(pairs) {
    list.replaceChildren();
    tier.purposes.forEach(purpose => legend_item(list, '', purpose, purpose));
    legend_item(list, pairs ? 'planned' : 'line', 'ink', pairs ? 'pale, left: planned' : 'line: planned');
    legend_item(list, '', 'ink', pairs ? 'full, right: peak in use' : 'bar: peak in use');
  }

  function stack(root, values, x, width, py, kind) {
    let below = 0;
    const inset = width > 6 ? 1 : 0;
    values.forEach((bytes, i) => {
      if (bytes === 0) return;
      const top = py(below + bytes), height = py(below) - top;
      svg('rect', { class: `bar ${kind}`, style: color(tier.purposes[i]), x: x + inset, y: top, width: Math.max(0.5, width - 2 * inset),
                    height: Math.max(0.3, height - (height > 3 ? 1 : 0)) }, root);
      below += bytes;
    });
  }

  function show(r) {
    picked = r;
    readout.classList.toggle('soft', r === null);
    if (r === null) { readout.textContent = hint; pick.setAttribute('visibility', 'hidden'); return; }
    pick.setAttribute('x', left + r * slot);
    pick.setAttribute('visibility', 'visible');
    const rank = ranks[r];
    const parts = tier.purposes.map((purpose, i) => [purpose, rank.planned[i], rank.peak[i]])
      .filter(([, planned, peak]) => planned > 0 || peak > 0)
      .map(([purpose, planned, peak]) => `${purpose} ${format.bytes(peak)}${peak === planned ? '' : ` of ${format.bytes(planned)}`}`);
    readout.textContent = `rank ${r}: peak ${format.bytes(rank.peak_total)} of ${format.bytes(rank.planned_total)} planned  \u00b7  `
      + parts.join('  \u00b7  ');
  }

  follow(plot, {
    at: x => show(clamp(Math.floor((x - left) / slot), 0, ranks.length - 1)),
    move: by => show(clamp((picked === null ? (by > 0 ? -1 : ranks.length) : picked) + by, 0, ranks.length - 1)),
    leave: () => show(null),
  });
  on_width(plot, draw);
}
