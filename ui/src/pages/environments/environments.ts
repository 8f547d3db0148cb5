/** Environments as the native API answers, and finding one among them. */
import type { Tone } from "../../components/Badge";

export interface Environment {
  name: string;
  version: string;
  description: string;
  /** `curated` or `registered`. */
  status: string;
  archived: boolean;
  tags: Record<string, string>;
  packages?: string[];
  python?: string;
  torch?: string;
  cuda?: string;
  size_bytes?: number | null;
  owner?: string;
  created_at?: string;
  /** What a registered one was made of. */
  image?: unknown;
  conda_file?: unknown;
}

/** One version with its build. `build` is `ready`, `building`, `failed`, `canceled` or `not built`. */
export interface EnvironmentVersion extends Environment {
  hash: string;
  build: string;
  notices: string[];
  error?: string;
  conda_packages?: string[];
}

export interface BuildLog {
  hash: string;
  status: string;
  log: string;
  next_offset: number;
  error: string;
  hint: string;
}

export interface Exported {
  file: string;
  text: string;
  source: string;
  notices: string[];
}

const TONES: Record<string, Tone> = { ready: "green", building: "blue", failed: "red", canceled: "grey" };

export function buildTone(build: string): Tone {
  return TONES[build] ?? "grey";
}

export function isCurated(environment: { status: string }): boolean {
  return environment.status.startsWith("curated");
}

/** Packages that it has, or those that its definition asks for: pip's and conda's. */
export function packagesOf(environment: Pick<Environment, "packages" | "conda_file">): string[] {
  if (environment.packages?.length) return environment.packages;
  const file = environment.conda_file;
  const wanted = file && typeof file === "object" ? (file as { dependencies?: unknown }).dependencies : null;
  if (!Array.isArray(wanted)) return [];
  return wanted.flatMap((each: unknown) => {
    if (typeof each === "string") return [each];
    const pip = each && typeof each === "object" ? (each as { pip?: unknown }).pip : null;
    return Array.isArray(pip) ? pip.map(String) : [];
  });
}

/** `torch==2.13.0+cpu` or conda's `numpy=1.26` → the name and what follows it. */
export function splitPackage(line: string): [string, string] {
  const [, name = line, version = ""] = /^([A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?)\s*(.*)$/.exec(line) ?? [];
  return [name, version.replace(/^={1,3}\s*/, "")];
}

/** The Python that its definition names; empty where it says nothing. */
export function pythonOf(environment: Environment): string {
  if (environment.python) return environment.python;
  const line = packagesOf({ ...environment, packages: [] }).find((each) => /^python\s*[=<>~]/.test(each));
  return line ? splitPackage(line)[1] : "";
}

export interface Found {
  environment: Environment;
  /** Packages because of which it was found, when its name and description don't say it. */
  packages: string[];
}

/** Those that have every word of `text` in their name, description, tags or packages.
 *
 * Case doesn't count, and neither do `-` and `_` in names of packages.
 */
export function find(environments: readonly Environment[], text: string): Found[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return environments.flatMap((environment) => {
    const about = [environment.name, environment.description, ...Object.entries(environment.tags ?? {}).flat()].join("\n").toLowerCase();
    const packages = packagesOf(environment);
    const because = new Set<string>();
    for (const word of words) {
      if (about.includes(word)) continue;
      const having = packages.filter((line) => plain(line).includes(plain(word)));
      if (!having.length) return [];
      for (const line of having) because.add(line);
    }
    return [{ environment, packages: [...because] }];
  });
}

function plain(text: string): string {
  return text.toLowerCase().replace(/_/g, "-");
}

/** How jobs name it. */
export function reference(environment: Pick<Environment, "name" | "version" | "status">): string {
  return isCurated(environment) ? environment.name : `azureml:${environment.name}:${environment.version}`;
}
