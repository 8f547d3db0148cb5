/** A job's environment as the native API answers: what was pinned, and what was built of it. */
import type { EnvironmentVersion } from "../environments/environments";

export interface JobEnvironment extends Pick<EnvironmentVersion, "hash" | "build" | "notices" | "packages" | "conda_packages" | "error" | "size_bytes"> {
  /** Name and version; empty for one that stands in the job file. */
  ref: string;
  spec: {
    python: string;
    requirements: string[];
    platform: string;
    conda: string[];
    channels: string[];
    image: { name?: string; dockerfile?: string } | null;
    variables: [string, string][];
  };
}

/** The image that it is or begins with, or the Dockerfile that makes it; empty for one of packages alone. */
export function imageOf({ spec }: Pick<JobEnvironment, "spec">): string {
  return spec.image?.name || (spec.image?.dockerfile ?? "");
}

export function kindOf({ spec }: Pick<JobEnvironment, "spec">): string {
  if (spec.image?.dockerfile) return "Dockerfile";
  if (spec.image) return spec.requirements.length || spec.conda.length ? "image with packages" : "image";
  if (spec.conda.length) return "conda packages";
  return spec.requirements.length ? "Python packages" : "Python";
}
