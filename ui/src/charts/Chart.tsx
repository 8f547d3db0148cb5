/** Lines over one axis, drawn by uPlot.
 *
 * Owns: drawing, the cursor's values, choosing a range. Leaves: reading to MetricChart.tsx.
 * Always: a range that is chosen is given to `onRange`, who may ask the server for its points;
 * charts of one `sync` show their cursors together; a line is told by its label, not its colour.
 */
import uPlot from "uplot";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { number } from "../lib/format";
import { onTheme } from "../lib/themeChange";
import { type Heights, heightsOf, notesOn, short } from "./heights";
import { type Points, align, lonePoints, placed, smooth } from "./series";

export interface ChartLine {
  id: string;
  label: string;
  points: Points;
  /** Which of the series colours, from 0. */
  color: number;
  href?: string;
}

export interface ChartProps {
  title: string;
  lines: readonly ChartLine[];
  height?: number;
  log?: boolean;
  /** 0 to below 1. */
  smoothing?: number;
  /** How an x is said. */
  sayX?: (x: number) => string;
  sayY?: (y: number) => string;
  sync?: string;
  onRange?: (from: number, to: number) => void;
  onReset?: () => void;
  /** For pictures and tests. */
  onReady?: (chart: uPlot) => void;
}

export const CHART_HEIGHT = 220;
export const SERIES_COLORS = 8;
/** A step, or seconds: what lies closer together is one place, with room on both sides. */
const LEAST_X = 0.1;
/** Pixels between two ticks of the vertical axis. */
const TICK_SPACE = 34;

export function colorOf(index: number, place: Element = document.documentElement): string {
  return token(`--series-${(index % SERIES_COLORS) + 1}`, place);
}

/** As it is where the chart is drawn: a notebook has no colours of ours outside of it. */
function token(name: string, place: Element): string {
  return getComputedStyle(place).getPropertyValue(name).trim();
}

export function Chart(props: ChartProps) {
  const { title, lines, height = CHART_HEIGHT, smoothing = 0, log = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const handlers = useRef(props);
  handlers.current = props;
  const [at, setAt] = useState<number | null>(null);
  const [theme, setTheme] = useState(0);
  useEffect(() => onTheme(() => setTheme((value) => value + 1)), []);

  const data = useMemo(() => {
    const raw = lines.map((line) => line.points);
    return align(smoothing ? [...raw, ...raw.map((points) => smooth(points, smoothing))] : raw);
  }, [lines, smoothing]);
  const heights = useMemo(() => heightsOf(lines.map((line) => line.points), log, props.sayY), [lines, log, props.sayY]);
  const drawn = useMemo(() => placed(data, heights) as uPlot.AlignedData, [data, heights]);
  const latest = useRef(heights);
  latest.current = heights;
  const notes = useMemo(() => notesOn(lines.map((line) => line.points), log), [lines, log]);
  const shape = lines.map((line) => `${line.id}\0${line.label}\0${line.color}`).join("\n");

  useEffect(() => {
    const element = box.current;
    if (!element || !lines.length) return;
    const options = optionsOf(handlers, latest, element, height, !!smoothing, setAt);
    const made = new uPlot(options, drawn, element);
    chart.current = made;
    handlers.current.onReady?.(made);
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [shape, height, log, !!smoothing, theme]);
  useEffect(() => {
    const made = chart.current;
    if (made && made.data !== drawn) made.setData(drawn);
  }, [drawn]);

  return (
    <figure class="chart" aria-label={`Chart of ${title}: ${lines.map((line) => line.label).join(", ")}`}>
      <div ref={box} class="chart-canvas" style={{ height: `${height}px` }} />
      <Legend {...props} at={at} data={data} />
      {notes.map((note) => <p class="chart-note" key={note}>{note}</p>)}
    </figure>
  );
}

function Legend({ lines, at, data, sayX = number, sayY = number }: ChartProps & { at: number | null; data: uPlot.AlignedData | readonly unknown[] }) {
  const columns = data as unknown as (number | null | undefined)[][];
  return (
    <figcaption class="legend">
      {lines.map((line, place) => (
        <span class="legend-item" key={line.id}>
          <span class={`legend-color series-${(line.color % SERIES_COLORS) + 1}`} aria-hidden="true" />
          {line.href ? <a href={line.href}>{line.label}</a> : line.label}
          <Value text={sayRange(columns, place, at, sayY)} isLast={at === null} />
        </span>
      ))}
      <span class="legend-x">{at === null ? "" : sayX(columns[0]?.[at] as number)}</span>
    </figcaption>
  );
}

/** Without a cursor it is the last one, and says so. */
function Value({ text, isLast }: { text: string; isLast: boolean }) {
  if (!text) return null;
  return <>{isLast && <span class="dim">last</span>}<span class="legend-value">{text}</span></>;
}

/** The value under the cursor, or the last one. */
function sayRange(columns: (number | null | undefined)[][], line: number, at: number | null, say: (y: number) => string): string {
  const low = columns[1 + 2 * line];
  const high = columns[2 + 2 * line];
  if (!low || !high) return "";
  let place = at ?? low.length - 1;
  while (place >= 0 && low[place] === undefined) place -= 1;
  const [bottom, top] = [low[place], high[place]];
  if (bottom == null || top == null) return "";
  return bottom === top ? say(bottom) : `${say(bottom)} – ${say(top)}`;
}

function optionsOf(handlers: { current: ChartProps }, heights: { current: Heights }, place: Element, height: number, smoothed: boolean, setAt: (at: number | null) => void): uPlot.Options {
  const { lines, sync } = handlers.current;
  const [ink, line] = [token("--ink-3", place), token("--line", place)];
  const axis: uPlot.Axis = { stroke: ink, font: '11px "Inter Variable", sans-serif', grid: { stroke: line, width: 1 }, ticks: { show: false } };
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  const add = (color: string, faint: boolean): void => {
    const look: uPlot.Series = { stroke: color, width: faint ? 1 : 1.5, points: { show: false, filter: lonePointsOf, size: 6, fill: color }, alpha: faint ? 0.28 : 1 };
    bands.push({ series: [series.length + 1, series.length], fill: `${color}${faint ? "14" : "2e"}` });
    series.push(look, { ...look });
  };
  for (const each of lines) add(colorOf(each.color, place), smoothed);
  if (smoothed) for (const each of lines) add(colorOf(each.color, place), false);
  return {
    width: place.clientWidth,
    height,
    series,
    bands,
    legend: { show: false },
    padding: [8, 14, 0, 0],
    scales: { x: { time: false, range: rangeX }, y: { range: (_, low, high) => rangeY(low, high, handlers.current.sayY && heights.current.say) } },
    axes: [
      { ...axis, size: 28, gap: 6, space: 64, values: (_, ticks) => ticks.map((x) => sayTick(handlers.current.sayX, x)) },
      { ...axis, size: 52, gap: 6, space: TICK_SPACE, splits: (...asked) => ticksOf(heights.current, ...asked), values: (_, ticks) => ticks.map((y) => (y === null ? "" : heights.current.say(y))) },
    ],
    cursor: {
      drag: { x: true, y: false, setScale: false },
      points: { size: 7 },
      y: false,
      ...(sync ? { sync: { key: sync, setSeries: false } } : {}),
    },
    hooks: {
      setCursor: [(chart) => setAt(chart.cursor.idx ?? null)],
      setSelect: [(chart) => choose(chart, handlers.current)],
      ready: [(chart) => chart.over.addEventListener("dblclick", () => handlers.current.onReset?.())],
    },
  };
}

function sayTick(say: ChartProps["sayX"], x: number | null): string {
  return x === null ? "" : (say ?? short)(x);
}

function choose(chart: uPlot, props: ChartProps): void {
  const { left, width } = chart.select;
  if (width > 4) props.onRange?.(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
  chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

function lonePointsOf(chart: uPlot, series: number): number[] | null {
  const lone = lonePoints(chart.data[series] as (number | null | undefined)[]);
  return lone.length ? lone : null;
}

/** Round heights, by uPlot's own step, or those of the scale. */
function ticksOf(heights: Heights, _: uPlot, __: number, low: number, high: number, step: number, space: number): number[] {
  if (heights.ticks) return heights.ticks(low, high, Math.max(2, Math.floor(((high - low) / step) * (space / TICK_SPACE))));
  const ticks: number[] = [];
  // Counted, not added up, so that no error adds up either.
  for (let count = Math.ceil(low / step - 1e-9); count * step <= high; count += 1) ticks.push(Number((count * step).toPrecision(12)));
  return ticks;
}

function rangeX(_: uPlot, low: number, high: number): uPlot.Range.MinMax {
  return high - low < LEAST_X ? [low - 1, high + 1] : [low, high];
}

function rangeY(low: number | null, high: number | null, say: ((height: number) => string) | undefined): uPlot.Range.MinMax {
  if (low === null || high === null) return [0, 1];
  // Ticks between two values that are said alike would all be alike.
  const isOne = say !== undefined && say(low) === say(high);
  const margin = (isOne ? 0 : (high - low) * 0.06) || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}
