/** What the native API answers, under the names that the page uses.
 *
 * The shapes come from the server's OpenAPI (types.ts, written by `npm run types`); here stands
 * what it can't say: which keys an answer leaves out, and what a job's document holds.
 */
import type { components } from "./types";

type Schemas = components["schemas"];
type LeftOut<T, K extends keyof T> = Omit<T, K> & Partial<Pick<T, K>>;

/** A job in a list. */
export type JobRow = LeftOut<Schemas["JobRow"], "metrics" | "params" | "inputs" | "waiting" | "rehearsal" | "job_tier" | "error"> & { error: JobError | null };
export type JobError = LeftOut<Schemas["JobFailure"], "details">;
export type Status = JobRow["status"];
export type Stage = Schemas["Stage"];

/** One job with all that is known of it. */
export type Job = Omit<Schemas["Job"], "spec" | "error" | "inputs"> & { spec: JobSpec; error: JobError | null };

/** The document that it was made of, as far as the page reads it. */
export interface JobSpec {
  command?: string;
  code?: string;
  environment?: unknown;
  inputs?: Record<string, unknown>;
  outputs?: Record<string, unknown>;
  environment_variables?: Record<string, string>;
  distribution?: Record<string, unknown>;
  resources?: Record<string, unknown>;
  /** Of a sweep. */
  search_space?: Record<string, unknown>;
  trial?: Record<string, unknown>;
  [key: string]: unknown;
}

export const ENDED: ReadonlySet<string> = new Set<Status>(["Completed", "Failed", "Canceled"]);

/** A number, or `NaN`, `Infinity`, `-Infinity` as JSON can write them. */
export type Value = number | "NaN" | "Infinity" | "-Infinity";

export interface Page<T> {
  value: T[];
  next?: string | number | null;
}

/** `output` is set in lists of named outputs. */
export type FileEntry = Schemas["JobFile"] & { output?: string };
export type Preview = LeftOut<Schemas["Preview"], "columns" | "rows" | "text" | "media_type">;
export type CodeFile = Schemas["CodeFile"];
export type CodeChange = Schemas["CodeChange"];
/** Each line has its sign before its text. */
export type Hunk = Omit<Schemas["Hunk"], "lines"> & { lines: [" " | "+" | "-", string][] };
export type FileDiff = Omit<Schemas["FileDiff"], "hunks"> & { hunks: Hunk[] };
export type MetricSummary = Schemas["MetricSummary"];
/** Points when they are few, else the least and the largest value of each column. */
export type ChartData = Partial<Pick<Schemas["Chart"], "job" | "points" | "columns">> & Pick<Schemas["Chart"], "key" | "x" | "exact" | "count">;
export type LogIndex = Schemas["LogIndex"];
export type LogHits = Schemas["LogHits"];
export type Experiment = Schemas["Experiment"];
export type WhoAmI = Pick<Schemas["WhoAmI"], "user" | "workspace" | "role">;

export interface Workspace {
  name: string;
  display_name: string;
  description: string;
}
