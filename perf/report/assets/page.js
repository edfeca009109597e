"use strict";
// Draws each chart of the data block into its figure. When all are drawn the root element carries
// their number in data-charts; an error stands in data-error.
(() => {
  const root = document.documentElement;
  window.addEventListener("error", (e) => { root.dataset.error = e.message; });
  const colours = ["#0969da", "#cf222e", "#1a7f37", "#8250df", "#bf8700", "#1b7c83", "#953800", "#57606a"];
  const height = 300;

  const short = (v) => {
    if (v == null) return "-";
    const a = Math.abs(v);
    for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (a >= unit) return Number((v / unit).toPrecision(4)) + name;
    }
    return String(Number(v.toPrecision(4)));
  };
  // Share of the messages at a place of the quantile axis, which is 1/(1-q).
  const share = (v) => (v == null ? "-" : Number((100 * (1 - 1 / v)).toFixed(v < 50 ? 1 : 4)) + " %");
  const powers = (splits) => splits.map((v) => (Number.isInteger(Math.log10(v)) || Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null));

  const draw = (chart) => {
    const figure = document.getElementById(chart.id);
    const plot = figure.querySelector(".plot");
    const data = uPlot.join(chart.series.map((s) => [s.x, s.y]));
    const quantiles = chart.kind === "quantile";
    const x = quantiles
      ? { time: false, distr: 3, log: 10 }
      : { time: false };
    const y = chart.log
      ? { distr: 3, log: 10 }
      : { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] };
    const options = {
      width: Math.max(plot.clientWidth, 200),
      height,
      padding: [null, 36, null, null],
      scales: { x, y },
      axes: [
        quantiles
          ? { label: "share of messages at or below", filter: (u, splits) => powers(splits), values: (u, splits) => splits.map((v) => (v == null ? "" : share(v))) }
          : { label: chart.x, values: (u, splits) => splits.map(short) },
        {
          label: chart.unit, size: 64,
          filter: (u, splits) => (chart.log ? powers(splits) : splits),
          values: (u, splits) => splits.map((v) => (v == null ? "" : short(v))),
        },
      ],
      series: [
        { label: quantiles ? "share" : chart.x, value: (u, v) => (quantiles ? share(v) : short(v)) },
        ...chart.series.map((s, i) => ({
          label: s.label,
          stroke: colours[(s.colour ?? i) % colours.length],
          width: s.dash ? 1.2 : 1.8,
          dash: s.dash ? [6, 4] : undefined,
          spanGaps: true,
          points: { show: s.x.length < 3 },
          value: (u, v) => short(v),
        })),
      ],
    };
    const drawn = new uPlot(options, data, plot);
    new ResizeObserver(() => {
      const width = Math.max(plot.clientWidth, 200);
      if (width !== drawn.width) drawn.setSize({ width, height });
    }).observe(plot);
  };

  const charts = JSON.parse(document.getElementById("data").textContent) ?? [];
  charts.forEach(draw);
  root.dataset.charts = String(charts.length);
})();
