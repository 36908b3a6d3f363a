// Opens every page in a frame of its width, measures what was drawn, uses it as a person would, and leaves the answers as JSON
// in the document, where the test reads them. `cases` is written by the test: [{name, file, width}].
'use strict';

const count = (root, selector) => root.querySelectorAll(selector).length;

// Labels that leave their drawing, or cover each other.
function bad_labels(root) {
  const bad = [];
  for (const svg of root.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map(text => ({ text: text.textContent, box: text.getBoundingClientRect() }));
    boxes.forEach(({ text, box }, i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1) bad.push(`cut: ${text}`);
      for (const other of boxes.slice(i + 1)) {
        const apart = box.right <= other.box.left || other.box.right <= box.left || box.bottom <= other.box.top + 3 || other.box.bottom <= box.top + 3;
        if (!apart) bad.push(`overlap: ${text} / ${other.text}`);
      }
    });
  }
  return bad;
}

function curves(root) {
  const charts = {};
  for (const figure of root.querySelectorAll('figure[id^=chart-]')) {
    const points = {};
    for (const path of figure.querySelectorAll('.curve')) {
      points[path.dataset.series] = (path.getAttribute('d').match(/[ML]/g) || []).length;
    }
    charts[figure.id.slice(6)] = {
      points, pieces: [...figure.querySelectorAll('.curve')].map(path => path.getAttribute('d').split('M').length - 1),
      dots: count(figure, '.dot'), crosses: count(figure, 'path.cross'), events: count(figure, '.event'),
      text: figure.querySelector('.readout').textContent,
    };
  }
  return charts;
}

// The arrow keys and the switches of the loss chart.
function use(window) {
  const figure = window.document.getElementById('chart-loss');
  if (!figure) return {};
  const plot = figure.querySelector('.plot'), readout = figure.querySelector('.readout');
  const press = key => plot.dispatchEvent(new window.KeyboardEvent('keydown', { key }));
  const labels = () => [...figure.querySelectorAll('svg text')].map(text => text.textContent).join(' ');
  const answers = {};
  press('Home');
  answers.first = readout.textContent;
  press('ArrowRight');
  answers.second = readout.textContent;
  press('End');
  answers.last = readout.textContent;
  const plain = labels();
  figure.querySelector('input[name=log]').click();
  answers.log_changes_axis = labels() !== plain;
  figure.querySelector('input[name=log]').click();
  const smooth = figure.querySelector('input[name=smooth]');
  if (smooth) {
    const before = count(figure, '.curve');
    smooth.click();
    answers.curves_lost = before - count(figure, '.curve');
    smooth.click();
  }
  const timeline = window.document.getElementById('timeline');
  if (timeline) {
    timeline.querySelector('.plot').dispatchEvent(new window.KeyboardEvent('keydown', { key: 'Home' }));
    answers.first_span = timeline.querySelector('.readout').textContent;
    const before = count(timeline, '.span');
    timeline.querySelector('button').click();
    answers.zoom_hides = before - count(timeline, '.span');
    timeline.querySelectorAll('button')[2].click();
    answers.zoom_all = before - count(timeline, '.span');
  }
  const memory = window.document.getElementById('memory-device');
  if (memory) {
    memory.querySelector('.plot').dispatchEvent(new window.KeyboardEvent('keydown', { key: 'Home' }));
    answers.first_rank = memory.querySelector('.readout').textContent;
  }
  return answers;
}

// Contrast of the colours in use, as WCAG counts it.
function contrasts(window) {
  const style = window.getComputedStyle(window.document.documentElement);
  const luminance = name => {
    const hex = style.getPropertyValue(`--${name}`).trim();
    const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
      .map(c => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const worst = names => Math.min(...names.flatMap(name => [contrast(name, 'surface'), contrast(name, 'page')]));
  return {
    text: worst(['ink', 'soft', 'good', 'warn', 'exposed']),
    marks: worst(['train', 'eval', 'exposed', 'axis', 'forward', 'backward', 'recompute', 'other', 'gather', 'reduce', 'parameters', 'gradients',
                  'masters', 'moments', 'gathered', 'buckets', 'activations', 'logits', 'workspace', 'staging', 'inputs', 'libraries']),
    dark: luminance('page') < 0.5,
  };
}

function measure(frame) {
  const window = frame.contentWindow, root = window.document, page = root.documentElement;
  return {
    ready: page.dataset.ready === '1', errors: page.dataset.errors, width: window.innerWidth, content_width: page.scrollWidth,
    loaded: window.performance.getEntriesByType('resource').length, scripts: count(root, 'script'), images: count(root, 'img'),
    injected: 'hacked' in window, title: root.title, heading: root.querySelector('h1').textContent,
    curves: curves(root), planned: count(root, '.bar.planned'), peak: count(root, '.bar.peak'), plan_lines: count(root, '.plan'),
    limits: count(root, '.limit'), lanes: count(root, '.lane'), spans: count(root, '.span'), waits: count(root, '.wait'), bare: count(root, '.bare'),
    rows: count(root, 'tbody tr'), bad_labels: bad_labels(root), contrasts: contrasts(window), use: use(window), errors_after: page.dataset.errors,
  };
}

for (const { name, file, width } of cases) {
  const frame = document.createElement('iframe');
  Object.assign(frame, { name, src: file });
  Object.assign(frame.style, { width: `${width}px`, height: '800px', border: 0 });
  document.body.append(frame);
}
window.addEventListener('load', () => {
  const answers = {};
  for (const frame of document.querySelectorAll('iframe')) answers[frame.name] = measure(frame);
  document.querySelectorAll('iframe').forEach(frame => frame.remove());
  const result = document.createElement('pre');
  result.id = 'answers';
  result.textContent = JSON.stringify(answers).replace(/[<>&]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  document.body.append(result);
});
