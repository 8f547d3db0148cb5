/** One chart of metrics of one or more jobs, read from the server for the range that is shown.
 *
 * Always: it asks for as many columns as it is wide, or fewer where it has many lines, for exact
 * points when zoomed, and only once it can be seen; while a job runs it is read again when its metric has new points. What is zoomed
 * is in the page's address.
 */
import type uPlot from "uplot";
import { useMemo, useRef, useState } from "preact/hooks";
import { api, get } from "../api/client";
import type { ChartData, Page } from "../api/model";
import { Button } from "../components/Button";
import { ErrorNote } from "../components/Empty";
import { Menu } from "../components/Menu";
import { count, duration } from "../lib/format";
import { useLoad, useThrottled } from "../lib/query";
import { setQuery, useAddress } from "../lib/router";
import { save } from "../lib/save";
import { useSeen } from "../lib/seen";
import { useEvent, useWorkspace } from "../lib/session";
import { CHART_HEIGHT, Chart, type ChartLine } from "./Chart";
import { toPng, toSvg } from "./picture";
import { pointsOf } from "./series";
import { type Range, readZoom, zoomChange } from "./zoom";

export interface Source {
  job: string;
  key: string;
  label: string;
  color: number;
  /** Milliseconds since 1970, where `time` begins. */
  start: number;
  href?: string;
}

export interface Axis {
  x: "step" | "time";
  log: boolean;
  smoothing: number;
}

const REREAD_MS = 1500;
/** Of all lines of a chart. */
const MOST_COLUMNS = 10_000;
/** How far from the window a chart is read. */
const NEAR_PX = 300;
/** What stands above and below the lines. */
const AROUND_PX = 100;

interface Props {
  title: string;
  /** Asked for once the chart comes near. */
  sources: () => readonly Source[];
  axis: Axis;
  sync?: string;
  height?: number;
  sayY?: (y: number) => string;
}

export function MetricChart(props: Props) {
  const { title, height = CHART_HEIGHT } = props;
  const [root, isSeen] = useSeen<HTMLElement>(NEAR_PX);
  return (
    <section class="metric" ref={root} aria-label={title} style={{ minHeight: `${height + AROUND_PX}px` }}>
      {isSeen ? <NearChart {...props} width={root.current?.clientWidth ?? 0} /> : <h3>{title}</h3>}
    </section>
  );
}

function NearChart({ title, sources: sourcesOf, axis, sync, height, sayY, width: shownWidth }: Props & { width: number }) {
  const workspace = useWorkspace();
  const drawn = useRef<uPlot | null>(null);
  const { query: shownQuery } = useAddress();
  const range = readZoom(shownQuery, title, axis.x);
  const setRange = (chosen: Range | null): void => {
    if (chosen || range) putZoom(zoomChange(new URLSearchParams(location.search), title, axis.x, chosen));
  };
  const [width] = useState(() => Math.max(100, Math.min(2000, Math.ceil(shownWidth / 100) * 100)));
  const sources = sourcesOf();
  const jobs = [...new Set(sources.map((source) => source.job))];
  const keys = [...new Set(sources.map((source) => source.key))];
  const start = Math.min(...sources.map((source) => source.start));
  const query = { job: jobs, key: keys, width: columnsFor(width, jobs.length * keys.length), ...rangeQuery(axis.x, range, start) };
  const url = api(workspace, ["metrics", "chart"], query);
  const { data, error, reload } = useLoad(url, (signal) => get<Page<ChartData>>(url, signal));
  const again = useThrottled(reload, REREAD_MS);
  useEvent("metrics", (event) => {
    if (jobs.includes(event.job) && event.metrics.some((metric) => keys.includes(metric.key))) again();
  });
  useEvent("refresh", again);

  const kept = useRef<Page<ChartData> | undefined>(undefined);
  if (data) kept.current = data;
  const shown = data ?? kept.current;
  const lines = useMemo(() => linesOf(shown?.value ?? [], sources, axis.x), [shown, JSON.stringify(sources), axis.x]);
  const total = shown?.value.reduce((sum, line) => sum + line.count, 0) ?? 0;
  const isReduced = shown?.value.some((line) => !line.exact) ?? false;
  return (
    <>
      <header class="metric-head">
        <h3>{title}</h3>
        <div class="metric-tools">
          {range && <Button kind="quiet" icon="zoomout" label="Show all" onClick={() => setRange(null)} />}
          <Download title={title} jobs={jobs} keys={keys} lines={lines} log={axis.log} drawn={drawn} />
        </div>
      </header>
      {error && !shown ? <ErrorNote error={error} /> : (
        <Chart
          title={title} lines={lines} log={axis.log} smoothing={axis.smoothing} sync={sync} height={height} sayY={sayY}
          sayX={axis.x === "time" ? duration : undefined}
          onRange={(from, to) => setRange({ from, to })} onReset={() => setRange(null)}
          onReady={(chart) => void (drawn.current = chart)}
        />
      )}
      <p class="metric-foot">{shown && `${count(total)} points${isReduced ? ", least and largest of each column" : ""}${range ? ", zoomed" : ""}`}</p>
    </>
  );
}

let isPushed = false;

/** Charts that are zoomed together become one step back. */
function putZoom(change: Record<string, string[]>): void {
  setQuery(change, isPushed);
  isPushed = true;
  setTimeout(() => (isPushed = false));
}

/** Many lines over each other are drawn in wider columns, each with its least and largest values. */
function columnsFor(width: number, lines: number): number {
  return Math.max(50, Math.min(width, Math.floor(MOST_COLUMNS / Math.max(1, lines))));
}

function rangeQuery(x: Axis["x"], range: Range | null, start: number): Record<string, string | number> {
  const query: Record<string, string | number> = { x };
  if (!range) return query;
  const toServer = (value: number): number => (x === "time" ? value * 1000 + start : value);
  return { ...query, from: Math.floor(toServer(range.from)), to: Math.ceil(toServer(range.to)) };
}

function linesOf(charts: readonly ChartData[], sources: readonly Source[], x: Axis["x"]): ChartLine[] {
  const found = new Map(charts.map((data) => [`${data.job}\0${data.key}`, data]));
  return sources.flatMap((source) => {
    const data = found.get(`${source.job}\0${source.key}`);
    if (!data) return [];
    const points = x === "time" ? pointsOf(data, source.start, 1 / 1000) : pointsOf(data);
    return [{ id: `${source.job}\0${source.key}`, label: source.label, points, color: source.color, href: source.href }];
  });
}

function Download({ title, jobs, keys, lines, log, drawn }: { title: string; jobs: string[]; keys: string[]; lines: ChartLine[]; log: boolean; drawn: { current: uPlot | null } }) {
  const workspace = useWorkspace();
  const png = async (): Promise<void> => {
    const canvas = drawn.current?.ctx.canvas;
    if (canvas) save(await toPng(canvas, title, lines), `${title}.png`);
  };
  return (
    <Menu icon="download" kind="quiet" label={`Download ${title}`}>
      {(close) => (
        <div onClick={close}>
          <a class="menu-item" download={`${title}.csv`.replace(/[^\w.-]+/g, "_")} href={api(workspace, ["metrics", "export"], { job: jobs, key: keys, format: "csv" })}>All points as CSV</a>
          <button type="button" class="menu-item" onClick={() => void png()}>Picture as PNG</button>
          <button type="button" class="menu-item" onClick={() => save(toSvg(title, lines, log), `${title}.svg`)}>Picture as SVG</button>
        </div>
      )}
    </Menu>
  );
}
