// Curves over steps: axes, gaps, marks for values that are not finite, events, smoothing and logarithmic scale.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

// The y axis: range and ticks of the visible values.
function y_axis(chart, series, log, rows) {
  let low = Infinity, high = -Infinity;
  for (const s of series) {
    for (const y of s.y) {
      if (y === null || (log && y <= 0)) continue;
      low = Math.min(low, y);
      high = Math.max(high, y);
    }
  }
  if (low > high) { low = log ? 0.1 : 0; high = 1; }
  if (log) {
    if (high / low < 1.01) { low /= 1.5; high *= 1.5; }
    return { low: low / 1.05, high: high * 1.05, marks: log_ticks(low / 1.05, high * 1.05), place: Math.log };
  }
  if (chart.from_zero) { low = Math.min(0, low); }
  if (chart.to_one) { high = 1; }
  if (high === low) { const pad = Math.abs(high) * 0.1 || 1; low -= chart.from_zero ? 0 : pad; high += pad; }
  const pad = (high - low) * 0.05;
  low -= low === 0 && chart.from_zero ? 0 : pad;
  high += chart.to_one ? 0 : pad;
  return { low, high, marks: ticks(low, high, rows), place: v => v };
}

function curve_path(s, px, py, log) {
  let path = '', open = false;
  const alone = [];
  s.x.forEach((x, i) => {
    const y = s.y[i];
    if (y === null || (log && y <= 0)) { open = false; return; }
    const next = s.y[i + 1];
    if (!open && (next === undefined || next === null)) alone.push(i);
    path += `${open ? 'L' : 'M'}${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
    open = true;
  });
  return { path, alone };
}

function draw_curves(figure, chart) {
  const plot = figure.querySelector('.plot'), readout = figure.querySelector('.readout');
  const list = figure.querySelector('.legend'), controls = figure.querySelector('.controls');
  const fmt = format[chart.format];
  const state = { smooth: true, log: false, at: null };
  const smoothed = chart.series.some(s => s.role === 'smooth');
  const last = chart.series[0].x.length - 1;
  let geometry = null;
  const visible = () => chart.series.filter(s => s.role !== 'smooth' || state.smooth);

  const named = chart.series.filter(s => s.role !== 'smooth');
  if (named.length > 1) for (const s of named) legend_item(list, 'line', s.color, s.name);
  if (chart.series.some(s => s.y.includes(null))) legend_item(list, 'cross', 'exposed', 'not finite');
  const toggle = (name, text) => {
    const label = html('label', {}, controls);
    const box = html('input', { type: 'checkbox', name }, label);
    box.checked = state[name];
    label.append(text);
    box.addEventListener('change', () => { state[name] = box.checked; draw(plot.clientWidth); });
  };
  if (smoothed) toggle('smooth', 'smoothed');
  if (chart.log) toggle('log', 'log scale');

  function draw_axes(root, y, width, height, m) {
    const { px, py } = geometry;
    for (const v of y.marks) {
      svg('line', { class: 'gridline', x1: m.left, x2: width - m.right, y1: py(v), y2: py(v) }, root);
      svg('text', { x: m.left - 8, y: py(v) + 4, 'text-anchor': 'end' }, root, fmt(v));
    }
    const [first, last] = chart.range;
    const marks = first === last ? [first] : ticks(first, last, width / 110).filter(v => Number.isInteger(v));
    for (const v of marks) {
      const x = px(v);
      svg('line', { class: 'axisline', x1: x, x2: x, y1: height - m.bottom, y2: height - m.bottom + 4 }, root);
      const text = format.step(v), half = 3.8 * text.length;  // inside the drawing, also at its end
      svg('text', { x: clamp(x, m.left, width - half), y: height - m.bottom + 18, 'text-anchor': 'middle' }, root, text);
    }
    svg('text', { x: m.left - 14, y: height - m.bottom + 18, 'text-anchor': 'end' }, root, 'step');
    svg('line', { class: 'axisline', x1: m.left, x2: width - m.right, y1: height - m.bottom, y2: height - m.bottom }, root);
  }

  function draw_series(root, s, bottom) {
    const { px, py } = geometry;
    const group = svg('g', { style: `--c:var(--${s.color})` }, root);
    const { path, alone } = curve_path(s, px, py, state.log);
    const faint = s.role === 'raw' && state.smooth && smoothed;
    if (path) svg('path', { class: faint ? 'curve raw' : 'curve', d: path, 'data-series': s.name }, group);
    // A few points are shown as such; a point without neighbours has no line.
    const dots = s.role === 'dots' && s.x.length <= 60 ? s.x.keys() : alone;
    for (const i of dots) {
      if (s.y[i] !== null) svg('circle', { class: 'dot', cx: px(s.x[i]), cy: py(s.y[i]), r: 3.5 }, group);
    }
    if (s.role === 'smooth') return;
    s.y.forEach((y, i) => {
      if (y !== null) return;
      const x = px(s.x[i]);
      const cross = svg('path', { class: 'cross', d: `M${x - 4} ${bottom - 10}l8 8m0 -8l-8 8` }, group);
      svg('title', {}, cross, `${s.name} at step ${s.x[i]} is not finite`);
    });
  }

  function draw(width) {
    const height = chart.tall ? 320 : 220, m = { left: 58, right: 14, top: 10, bottom: 28 };
    const y = y_axis(chart, visible(), state.log, height / 50);
    const [first, last] = chart.range, across = width - m.left - m.right, down = height - m.top - m.bottom;
    const low = y.place(y.low), high = y.place(y.high);
    geometry = {
      px: v => m.left + (first === last ? 0.5 : (v - first) / (last - first)) * across,
      py: v => m.top + (high - y.place(v)) / (high - low) * down,
      step: x => first + clamp((x - m.left) / across, 0, 1) * (last - first),
    };
    plot.replaceChildren();
    const root = svg('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': chart.description }, plot);
    draw_axes(root, y, width, height, m);
    for (const event of chart.events) {
      const x = geometry.px(event.step);
      const line = svg('line', { class: `event ${event.kind}`, x1: x, x2: x, y1: m.top, y2: height - m.bottom }, root);
      svg('title', {}, line, `step ${event.step}: ${event.text}`);
    }
    for (const s of visible()) draw_series(root, s, height - m.bottom);
    geometry.cursor = svg('g', { visibility: 'hidden' }, root);
    svg('line', { class: 'cursor', y1: m.top, y2: height - m.bottom }, geometry.cursor);
    show(state.at);
  }

  // Reads all curves at a point of the first one; without a choice at the last, and without the cursor.
  function show(index) {
    state.at = index;
    const step = chart.series[0].x[index === null ? last : index], { px, py, cursor } = geometry;
    cursor.setAttribute('visibility', index === null ? 'hidden' : 'visible');
    readout.classList.toggle('soft', index === null);
    const line = cursor.firstChild;
    line.setAttribute('x1', px(step));
    line.setAttribute('x2', px(step));
    while (cursor.lastChild !== line) cursor.lastChild.remove();
    const parts = [`step ${format.step(step)}`];
    for (const s of visible()) {
      if (s.x.length === 0) continue;
      const i = nearest(s.x, step), value = s.y[i];
      const where = s.role === 'dots' && s.x[i] !== step ? ` (step ${format.step(s.x[i])})` : '';
      const text = value === null ? 'not finite' : fmt(value);
      if (s.role === 'smooth') parts.push(`${parts.pop()} (smoothed ${text})`); else parts.push(`${s.name} ${text}${where}`);
      if (index === null || value === null || (state.log && value <= 0)) continue;
      svg('circle', { class: 'dot', cx: px(s.x[i]), cy: py(value), r: 4, style: `--c:var(--${s.color})` }, cursor);
    }
    for (const event of chart.events) if (Math.abs(px(event.step) - px(step)) < 3) parts.push(event.text);
    readout.textContent = parts.join('  \u00b7  ');
  }

  follow(plot, {
    at: x => show(nearest(chart.series[0].x, geometry.step(x))),
    move: by => show(clamp((state.at === null ? (by > 0 ? -1 : last + 1) : state.at) + by, 0, last)),
    leave: () => show(null),
  });
  on_width(plot, draw);
}
