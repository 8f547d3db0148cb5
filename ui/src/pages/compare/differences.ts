/** What jobs have in common and what not, name by name. */
import type { ComparedJob } from "../../api/model";
import { number } from "../../lib/format";

export interface Row {
  group: string;
  name: string;
  /** One of each job; empty where it has none. */
  values: string[];
  differs: boolean;
}

export const MOST_JOBS = 50;

/** Rows by group: status, metrics, parameters, inputs, what they ran and where. */
export function differences(jobs: readonly ComparedJob[]): Row[] {
  return [
    ...rowsOf("Job", jobs.map(summary)),
    ...rowsOf("Metrics, last values", jobs.map((job) => job.values)).sort((a, b) => a.name.localeCompare(b.name)),
    ...rowsOf("Parameters", jobs.map((job) => job.params)),
    ...rowsOf("Inputs", jobs.map((job) => job.spec.inputs ?? {})),
    ...rowsOf("Environment variables", jobs.map((job) => job.spec.environment_variables ?? {})),
    ...rowsOf("Tags", jobs.map((job) => job.tags)),
  ];
}

function summary(job: ComparedJob): Record<string, unknown> {
  return {
    status: job.status, "duration (s)": job.duration_s, nodes: job.node_count, "ranks per node": job.processes_per_node,
    compute: job.compute, owner: job.owner, experiment: job.experiment_name, command: job.spec.command, code: job.spec.code,
    environment: job.spec.environment, "environment content": job.environment_hash, error: job.error?.message,
  };
}

function rowsOf(group: string, columns: readonly Record<string, unknown>[]): Row[] {
  const names = [...new Set(columns.flatMap((column) => Object.keys(column)))];
  return names.map((name) => {
    const values = columns.map((column) => say(column[name]));
    return { group, name, values, differs: new Set(values).size > 1 };
  }).filter((row) => row.values.some(Boolean));
}

function say(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return number(value);
  if (typeof value === "object") {
    const { path } = value as { path?: unknown };
    return typeof path === "string" ? path : JSON.stringify(value);
  }
  return String(value);
}
