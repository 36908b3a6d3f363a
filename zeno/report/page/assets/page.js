// Draws everything that the page has a place for.
const data = JSON.parse(document.getElementById('report-data').textContent);
for (const chart of data.charts) draw_curves(document.getElementById(`chart-${chart.id}`), chart);
for (const tier of data.memory) draw_memory(document.getElementById(`memory-${tier.name}`), tier, tier.limit);
if (data.timeline) draw_timeline(document.getElementById('timeline'), data.timeline);
page.dataset.ready = 1;
