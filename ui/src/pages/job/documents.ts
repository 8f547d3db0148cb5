/** The document of a new job, made of one that exists.
 *
 * Always: references stay pinned and the code's snapshot is kept; the new job gets a name of its
 * own and says what it was made of, as `yard job clone` does.
 */
import type { Job, JobSpec } from "../../api/model";

const NOT_CLONED = new Set(["name", "display_name"]);

export interface Changes {
  display_name: string;
  inputs: Record<string, unknown>;
  node_count: number;
  /** Only where it differs. */
  command?: string;
}

export function cloned(job: Job, changes: Partial<Changes> = {}): JobSpec {
  const document: JobSpec = Object.fromEntries(Object.entries(job.spec).filter(([key]) => !NOT_CLONED.has(key)));
  const title = changes.display_name ?? (job.display_name === job.name ? "" : job.display_name);
  if (title) document.display_name = title;
  if (changes.inputs) document.inputs = { ...document.inputs, ...changes.inputs };
  if (changes.command !== undefined) document.command = changes.command;
  if (changes.node_count !== undefined && changes.node_count !== job.node_count) {
    document.resources = { ...document.resources, instance_count: changes.node_count };
  }
  document.experiment_name = job.experiment_name;
  document.properties = { ...(document.properties as object | undefined), "torchyard.cloned_from": job.name };
  return document;
}

/** What a field's text means for an input that had this value: numbers stay numbers. */
export function readLiteral(text: string, before: unknown): unknown {
  const trimmed = text.trim();
  if (typeof before === "number") {
    const value = Number(trimmed);
    return trimmed !== "" && Number.isFinite(value) ? value : text;
  }
  if (typeof before === "boolean" && (trimmed === "true" || trimmed === "false")) return trimmed === "true";
  return text;
}

/** Inputs that a form can change as text: literals, not data. */
export function literalInputs(spec: JobSpec): [string, unknown][] {
  return Object.entries(spec.inputs ?? {}).filter(([, value]) => value === null || typeof value !== "object");
}
