/** Models and data as the API answers them, and what both have in common. */

/** A section of the page, and of the API. */
export type AssetKind = "models" | "data";

/** One version. */
export interface Asset {
  name: string;
  version: number | string;
  type: string;
  description: string;
  tags: Record<string, string>;
  properties: Record<string, string>;
  /** The job that made it; empty for an upload. */
  job: string;
  owner: string;
  created_at: string;
  archived: boolean;
  /** Of data: where its files are. */
  path?: string;
  /** Of models: the path that it was registered from, and names of this version. */
  source?: string;
  /** Of models: where its files are in the default datastore; empty for remote ones. */
  folder?: string;
  aliases?: string[];
}

export interface Datastore {
  name: string;
  type: string;
  description: string;
  tags: Record<string, string>;
  url: string;
  created_at: string;
  built_in: boolean;
  is_default: boolean;
  [key: string]: unknown;
}

/** As jobs name it. */
export function addressOf(asset: Pick<Asset, "name" | "version">): string {
  return `azureml:${asset.name}:${asset.version}`;
}

/** What the name's stage is; models have one among their properties. */
export function stageOf(asset: Asset): string {
  return asset.properties.stage ?? "";
}

/** Rows whose name, type, description, tags or owner hold all words of `text`. */
export function fitting(assets: readonly Asset[], text: string): Asset[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return assets.filter((asset) => {
    const all = [asset.name, asset.type, asset.description, asset.owner, asset.job, stageOf(asset), ...Object.entries(asset.tags).flat()].join("\n").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

/** The datastore of `azureml://datastores/NAME/paths/…`; null for any other path. */
export function datastoreOf(path: string): string | null {
  return /^azureml:\/\/(?:.*\/)?datastores\/([^/]+)\//.exec(path)?.[1] ?? null;
}
