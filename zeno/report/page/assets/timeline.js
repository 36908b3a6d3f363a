// One step of one rank: a row per lane. Where computation stands still for communication, both are drawn in one warning colour.
const kCompute = { forward: 'forward', loss: 'forward', recompute: 'recompute', backward: 'backward' };

function span_color(lane, first_lane, name) {
  if (lane !== first_lane) return ['gather', 'reduce'].includes(lane) ? lane : 'other';
  return kCompute[name.split(' ')[0]] || 'other';
}

function draw_timeline(figure, data) {
  const plot = figure.querySelector('.plot'), readout = figure.querySelector('.readout');
  const list = figure.querySelector('.legend'), controls = figure.querySelector('.controls');
  const all = data.duration, kRow = 30, kLabel = 20, kAxis = 26;
  const top = lane => kLabel + lane * (kRow + kLabel);
  const spans = data.spans.map(([lane, name, begin, end]) => ({ lane, name, begin, end }));
  const waits = data.waits.map(([name, begin, end]) => ({ lane: 0, name, begin, end, wait: true }));
  const everything = spans.concat(waits).sort((a, b) => a.begin - b.begin || a.lane - b.lane);
  const hint = 'Point at a span, or use the arrow keys, to read it.';
  let view = [0, all], px = null, time = null, at = null, cursor = null, focus = all / 2;

  const used = new Set(spans.map(s => span_color(data.lanes[s.lane], data.lanes[0], s.name)));
  const words = { forward: 'forward', backward: 'backward', recompute: 'recompute', gather: 'gather', reduce: 'reduce', other: 'other work' };
  for (const key of Object.keys(words)) if (used.has(key)) legend_item(list, '', key, words[key]);
  legend_item(list, '', 'exposed', 'exposed: computation waits');

  const zoom = factor => {
    const width = Math.min(all, (view[1] - view[0]) * factor);
    const begin = clamp(focus - width / 2, 0, all - width);
    view = [begin, begin + width];
    draw(plot.clientWidth);
  };
  const button = (text, label, action) => html('button', { type: 'button', 'aria-label': label }, controls, text)
    .addEventListener('click', action);
  button('+', 'zoom in', () => zoom(0.5));
  button('\u2212', 'zoom out', () => zoom(2));
  button('all', 'show the whole step', () => zoom(Infinity));

  // The parts of a communication span during which computation waited.
  function bare_parts(span) {
    return waits.filter(w => w.begin < span.end && w.end > span.begin)
      .map(w => [Math.max(w.begin, span.begin), Math.min(w.end, span.end)]);
  }

  function box(root, style, begin, end, y, height, name) {
    if (end < view[0] || begin > view[1]) return;
    const x = Math.max(px(begin), 0), width = Math.max(0.75, Math.min(px(end), plot.clientWidth) - x);
    const rect = svg('rect', { ...style, x: x.toFixed(2), y, width: width.toFixed(2), height }, root);
    if (name) svg('title', {}, rect, name);
  }

  function draw(width) {
    const height = top(data.lanes.length) - kLabel + kAxis + 4;
    px = t => (t - view[0]) / (view[1] - view[0]) * width;
    time = x => view[0] + x / width * (view[1] - view[0]);
    plot.replaceChildren();
    const root = svg('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': data.description }, plot);
    data.lanes.forEach((lane, i) => {
      svg('text', { x: 0, y: top(i) - 5 }, root, lane);
      svg('rect', { class: 'lane', x: 0, y: top(i), width, height: kRow }, root);
    });
    for (const s of spans) {
      const color = span_color(data.lanes[s.lane], data.lanes[0], s.name);
      box(root, { class: 'span', style: `--c:var(--${color})` }, s.begin, s.end, top(s.lane), kRow);
      if (s.lane > 0) for (const [a, b] of bare_parts(s)) box(root, { class: 'bare' }, a, b, top(s.lane) + kRow - 10, 10);
    }
    for (const w of waits) box(root, { class: 'wait' }, w.begin, w.end, top(0), kRow);
    const bottom = height - kAxis;
    for (const v of ticks(view[0], view[1], width / 110)) {
      const x = px(v);
      svg('line', { class: 'axisline', x1: x, x2: x, y1: bottom, y2: bottom + 5 }, root);
      svg('text', { x: clamp(x, 14, width - 26), y: bottom + 19, 'text-anchor': 'middle' }, root, format.ms(v));
    }
    svg('line', { class: 'axisline', x1: 0, x2: width, y1: bottom, y2: bottom }, root);
    cursor = svg('rect', { class: 'cursor', fill: 'none', 'stroke-width': 2, height: kRow, visibility: 'hidden' }, root);
    show(at);
  }

  function show(span) {
    at = span;
    readout.classList.toggle('soft', !span);
    if (!span) { readout.textContent = hint; cursor.setAttribute('visibility', 'hidden'); return; }
    focus = (span.begin + span.end) / 2;
    cursor.setAttribute('x', px(span.begin));
    cursor.setAttribute('width', Math.max(1, px(span.end) - px(span.begin)));
    cursor.setAttribute('y', top(span.lane));
    cursor.setAttribute('visibility', 'visible');
    const bare = span.lane > 0 ? bare_parts(span).reduce((sum, [a, b]) => sum + b - a, 0) : 0;
    readout.textContent = `${data.lanes[span.lane]}: ${span.name}  \u00b7  ${format.ms(span.end - span.begin)} from ${format.ms(span.begin)}`
      + (bare > 0 ? `  \u00b7  exposed ${format.ms(bare)}` : '');
  }

  follow(plot, {
    at: (x, y) => {
      const lane = clamp(Math.floor((y - kLabel / 2) / (kRow + kLabel)), 0, data.lanes.length - 1), t = time(x);
      const reach = (view[1] - view[0]) / plot.clientWidth;
      show(everything.find(s => s.lane === lane && s.begin - reach <= t && t <= s.end + reach) || null);
    },
    move: by => {
      const index = at ? everything.indexOf(at) : (by > 0 ? -1 : everything.length);
      const span = everything[clamp(index + by, 0, everything.length - 1)];
      if (span && (span.begin < view[0] || span.begin > view[1])) { focus = span.begin; zoom(1); }
      show(span);
    },
    leave: () => show(null),
  });
  on_width(plot, draw);
}
