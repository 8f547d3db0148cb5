/** What the kernel sends; src/torchyard/notebook/view.py makes it. */
import type { ChartData, Job, JobError } from "../api/model";

export type ViewedJob = Pick<
  Job,
  | "name" | "display_name" | "experiment_name" | "status" | "waiting" | "compute" | "created_at"
  | "started_at" | "ended_at" | "duration_s" | "node_count" | "processes_per_node" | "stages"
> & { error: Pick<JobError, "message" | "hint" | "code"> | null; page: string };

export interface Charts {
  lines: ChartData[];
  /** Keys without a line, because they are many. */
  left_out: number;
}

export interface Log {
  path: string;
  lines: string[];
  /** Whether lines before these were left out. */
  is_cut: boolean;
}

export interface State {
  job: ViewedJob;
  charts: Charts;
  log: Log;
  /** Why it is not up to date; empty when it is. */
  note: string;
  saved: string;
}

/** Of anywidget. */
export interface Model {
  get<K extends keyof State>(name: K): State[K];
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}
