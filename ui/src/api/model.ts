/** What the native API answers, under the names that the page uses.
 *
 * The shapes come from the server's OpenAPI (types.ts, written by `npm run types`); here stands
 * what it can't say: what a job's document holds.
 */
import type { components } from "./types";

type Schemas = components["schemas"];

/** A job in a list. */
export type JobRow = Schemas["JobRow"];
export type JobError = Schemas["JobFailure"];
export type Status = Schemas["Status"];
export type Stage = Schemas["Stage"];

/** One job with all that is known of it. */
export type Job = Omit<Schemas["Job"], "spec"> & { spec: JobSpec };

/** A job beside others. */
export type ComparedJob = Omit<Schemas["ComparedJob"], "spec"> & { spec: JobSpec };

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
export type FileEntry = Schemas["Artifact"] & { output?: string };
export type Preview = Schemas["Preview"];
export type CodeFile = Schemas["CodeFile"];
export type CodeChange = Schemas["CodeChange"];
/** Each line has its sign before its text. */
export type Hunk = Schemas["Hunk"];
export type FileDiff = Schemas["FileDiff"];
export type MetricSummary = Schemas["MetricSummary"];
/** Points when they are few, else the least and the largest value of each column. */
export type ChartData = Schemas["Chart"];
export type LogIndex = Schemas["LogIndex"];
export type LogHits = Schemas["LogHits"];
export type Experiment = Schemas["Experiment"];
export type WhoAmI = Pick<Schemas["WhoAmI"], "user" | "workspace" | "role">;

export interface Workspace {
  name: string;
  display_name: string;
  description: string;
}
