/** What nodes and ranks use: which figures share a chart, and how they read.
 *
 * Owns: the charts of the Resources part and their order.
 * Leaves: the figures' names to the worker, drawing to MetricChart.tsx.
 * Always: every key that the worker samples is in one chart; keys that nobody knows here have their
 * own.
 */
import { bytes, number } from "../../lib/format";

export interface ResourceChart {
  title: string;
  keys: { key: string; label: string }[];
  say: (value: number) => string;
}

/** ` (sampled)` stands behind a key that the script logs, too. */
const SAMPLED = /^system\/(node|rank)-(\d+)\/(.+?)(?: \(sampled\))?$/;
const GPU = /^gpu_(\d+)_(.+)$/;
/** The server draws up to 100 lines at once; more than these can't be told apart. */
const MOST_LINES = 32;

const percent = (value: number): string => `${number(Math.round(value * 10) / 10)} %`;
const megabytes = (value: number): string => bytes(value * 1e6);
const watts = (value: number): string => `${number(Math.round(value))} W`;

/** In their order on the page: the name of the figure, the chart's title, its unit. */
const CHARTS: readonly (readonly [string, string, (value: number) => string])[] = [
  ["process_cpu_percentage", "CPU of each rank, 100 % is a core", percent],
  ["process_memory_rss_megabytes", "Memory of each rank", megabytes],
  ["gpu_utilization_percentage", "GPU use", percent],
  ["gpu_memory_usage_megabytes", "GPU memory", megabytes],
  ["gpu_memory_usage_percentage", "GPU memory, share", percent],
  ["gpu_power_usage_watts", "GPU power", watts],
  ["gpu_power_usage_percentage", "GPU power, share of its limit", percent],
  ["job_cpu_percentage", "CPU of the job on each node, 100 % is a core", percent],
  ["job_memory_usage_megabytes", "Memory of the job on each node", megabytes],
  ["cpu_utilization_percentage", "CPU of the machine", percent],
  ["system_memory_usage_megabytes", "Memory of the machine", megabytes],
  ["system_memory_usage_percentage", "Memory of the machine, share", percent],
  ["network_receive_megabytes", "Received from the network", megabytes],
  ["network_transmit_megabytes", "Sent to the network", megabytes],
  ["disk_usage_megabytes", "Disk, used", megabytes],
  ["disk_usage_percentage", "Disk, share used", percent],
  ["disk_available_megabytes", "Disk, free", megabytes],
];

export function resourceCharts(keys: readonly string[]): ResourceChart[] {
  const members = new Map<string, ResourceChart["keys"]>();
  for (const key of [...keys].sort(order.compare)) {
    const { figure, label } = readKey(key);
    members.set(figure, [...(members.get(figure) ?? []), { key, label }]);
  }
  const known = CHARTS.flatMap(([figure, title, say]) => split(title, members.get(figure) ?? [], say));
  const names = new Set(CHARTS.map(([figure]) => figure));
  const others = [...members].filter(([figure]) => !names.has(figure));
  return [...known, ...others.flatMap(([figure, found]) => split(figure, found, number))];
}

const order = new Intl.Collator("en", { numeric: true });

function readKey(key: string): { figure: string; label: string } {
  const sampled = SAMPLED.exec(key);
  if (!sampled) return { figure: key, label: key };
  const [, kind = "", place = "", name = ""] = sampled;
  const gpu = GPU.exec(name);
  if (!gpu) return { figure: name, label: `${kind} ${place}` };
  return { figure: `gpu_${gpu[2] ?? ""}`, label: `${kind} ${place}, GPU ${gpu[1] ?? ""}` };
}

function split(title: string, keys: ResourceChart["keys"], say: (value: number) => string): ResourceChart[] {
  const charts: ResourceChart[] = [];
  for (let start = 0; start < keys.length; start += MOST_LINES) {
    const part = keys.slice(start, start + MOST_LINES);
    const range = keys.length > MOST_LINES ? `, ${part[0]?.label ?? ""} to ${part[part.length - 1]?.label ?? ""}` : "";
    charts.push({ title: `${title}${range}`, keys: part, say });
  }
  return charts;
}
