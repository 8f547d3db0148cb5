/** Clusters, their nodes and their queue, as the native API answers; and numbers made of them. */
import type { components } from "../../api/types";
import type { Tone } from "../../components/Badge";

export type ClusterNode = components["schemas"]["ClusterNode"];
export type WaitingJob = components["schemas"]["WaitingJob"];
export type History = components["schemas"]["ClusterHistory"];
export type PeopleHours = components["schemas"]["PeopleHours"];
export type NodeCount = History["counts"][number];

export interface Compute {
  name: string;
  type: string;
  /** Empty: the whole machine. */
  size: string;
  tier: string;
  engine: string;
  owner: string;
  description: string;
  tags: Record<string, string>;
  created_at: string;
  min_instances: number;
  max_instances: number;
  idle_time_before_scale_down: number;
  cores: number | null;
  memory_bytes: number | null;
  gpus: number | null;
  gpu_kind: string;
  allocation_state: string;
  current_node_count: number;
  target_node_count: number;
  node_state_counts: Record<string, number>;
}

export type EngineMachine = components["schemas"]["EngineNode"];
export type Nodes = components["schemas"]["ClusterNodes"];
export type Engine = components["schemas"]["Engine"];

/** A machine that somebody has joined to a cluster. */
export interface JoinedMachine {
  compute: string;
  name: string;
  owner: string;
  address: string;
  state: string;
  joined_at: string;
  seen_at: string;
  facts: { hostname?: string; cpus?: number; memory_bytes?: number; gpus?: number; gpu_kind?: string; system?: string };
}

/** Nodes that work first, then those that could, then those that can't. */
export const STATES = ["running", "preparing", "idle", "leaving", "preempted", "unusable"] as const;

const TONES: Record<string, Tone> = {
  running: "blue", preparing: "amber", joining: "amber", idle: "green", joined: "green", leaving: "grey", draining: "amber",
  preempted: "amber", unusable: "red", down: "red", away: "red",
};

export function stateTone(state: string): Tone {
  return TONES[state] ?? "grey";
}

/** How many nodes are in which state, in the order of `STATES`, without those that none is in. */
export function stateCounts(compute: Pick<Compute, "node_state_counts">): [string, number][] {
  return STATES.map((state): [string, number] => [state, compute.node_state_counts[`${state}_node_count`] ?? 0]).filter(([, many]) => many > 0);
}

/** Nodes that jobs hold. */
export function busyNodes(compute: Pick<Compute, "node_state_counts">): number {
  const counts = compute.node_state_counts;
  return (counts.running_node_count ?? 0) + (counts.preparing_node_count ?? 0);
}

/** `2 running, 1 idle; at most 4`. */
export function occupancyText(compute: Pick<Compute, "node_state_counts" | "max_instances">): string {
  const states = stateCounts(compute).map(([state, many]) => `${many} ${state}`);
  return `${states.join(", ") || "no nodes"}; at most ${compute.max_instances}`;
}

/** What one node has: `8 cores, 32 GB, 1 × H100`. */
export function nodeText(compute: Pick<Compute, "cores" | "gpus" | "gpu_kind">, memory: string): string {
  const parts = [];
  if (compute.cores) parts.push(compute.cores === 1 ? "1 core" : `${compute.cores} cores`);
  if (memory) parts.push(memory);
  if (compute.gpus) parts.push(`${compute.gpus} × ${compute.gpu_kind || "GPU"}`);
  return parts.join(", ");
}

export interface Steps {
  /** Areas from the bottom up, as SVG paths: nodes that existed, nodes that jobs held. */
  current: string;
  running: string;
  /** The largest number that is drawn. */
  most: number;
}

/** The number of nodes over time as steps in a picture of `width` × `height`.
 *
 * Each count holds from its time to the next one's, the last until the end.
 */
export function steps(counts: readonly NodeCount[], since_ms: number, until_ms: number, width: number, height: number, least_top = 1): Steps {
  const sorted = counts.map((count) => ({ ...count, at_ms: Date.parse(count.at) })).filter((count) => count.at_ms <= until_ms).sort((a, b) => a.at_ms - b.at_ms);
  const before = sorted.filter((count) => count.at_ms <= since_ms).at(-1);
  const shown = [...(before ? [{ ...before, at_ms: since_ms }] : []), ...sorted.filter((count) => count.at_ms > since_ms)];
  const most = Math.max(least_top, ...shown.map((count) => Math.max(count.current, count.running)));
  const x = (at_ms: number): string => (((at_ms - since_ms) / (until_ms - since_ms)) * width).toFixed(1);
  const y = (many: number): string => (height - (many / most) * height).toFixed(1);
  const area = (key: "current" | "running"): string => {
    const first = shown[0];
    if (!first) return "";
    const line = shown.map((count, at) => `${at ? `H${x(count.at_ms)}` : ""}V${y(count[key])}`).join("");
    return `M${x(first.at_ms)} ${height}${line}H${width}V${height}Z`;
  };
  return { current: area("current"), running: area("running"), most };
}

/** Node-hours that jobs held of those that there were, over all days; null without any. */
export function busyShare(usage: History["usage"]): number | null {
  const hours = usage.reduce((sum, day) => sum + day.node_hours, 0);
  return hours > 0 ? usage.reduce((sum, day) => sum + day.busy_hours, 0) / hours : null;
}

/** `0.02 h`, `3.4 h`, `1,250 h`. */
export function hours(value: number): string {
  if (value === 0) return "0 h";
  if (value < 0.01) return "< 0.01 h";
  if (value < 1) return `${value.toFixed(2)} h`;
  return value < 100 ? `${value.toFixed(1)} h` : `${Math.round(value).toLocaleString("en-US")} h`;
}
