/** What the native API answers about endpoints, and how it is put. */
import type { Tone } from "../../components/Badge";

export interface Endpoint {
  name: string;
  description?: string;
  auth_mode: string;
  traffic: Record<string, number>;
  mirror_traffic: Record<string, number>;
  provisioning_state: string;
  message: string;
  /** Empty until the router has an address. */
  scoring_uri: string;
  owner: string;
  created_at: string;
  changed_at: string;
}

export interface Instance {
  id: string;
  state: string;
  message: string;
  job: string;
  starts: number;
  created_at: string;
}

export interface Deployment {
  name: string;
  model?: unknown;
  environment?: unknown;
  instance_count: number;
  provisioning_state: string;
  message: string;
  instances: Instance[];
  changed_at: string;
}

export interface BatchEndpoint {
  name: string;
  description?: string;
  /** Empty until there is a deployment. */
  defaults: { deployment_name: string };
  owner: string;
  created_at: string;
  changed_at: string;
}

export interface BatchDeployment {
  name: string;
  model?: unknown;
  compute: string;
  resources: { instance_count: number };
  settings: { mini_batch_size: number };
  changed_at: string;
}

const TONES: Record<string, Tone> = { Succeeded: "green", Ready: "green", Running: "green", Failed: "red", Canceled: "grey", Deleting: "grey" };

export function toneOfState(state: string): Tone {
  return TONES[state] ?? "amber";
}

/** `blue 90 %, green 10 %`, the greatest first; empty without any. */
export function trafficText(traffic: Readonly<Record<string, number>>): string {
  return Object.entries(traffic)
    .filter(([, percent]) => percent > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([name, percent]) => `${name} ${percent} %`)
    .join(", ");
}

/** The name and version of a registered model; empty for one that is none. */
export function modelOf(model: unknown): readonly [string, string] | null {
  const match = typeof model === "string" ? /^azureml:([^:]+):([^:]+)$/.exec(model) : null;
  return match ? [match[1] as string, match[2] as string] : null;
}

/** `azureml:NAME` and `NAME` are the same cluster. */
export function computeName(compute: string): string {
  return compute.replace(/^azureml:/, "");
}

/** A line for a shell; the key is asked for there, so that none is shown here. */
export function curl(endpoint: Endpoint): string {
  const name = quoted(endpoint.name);
  const key = endpoint.auth_mode === "key" ? "primaryKey" : "accessToken";
  return `curl -H "Authorization: Bearer $(yard online-endpoint get-credentials -n ${name} --query ${key} -o tsv)" -H 'Content-Type: application/json' -d @request.json ${quoted(endpoint.scoring_uri)}`;
}

function quoted(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
