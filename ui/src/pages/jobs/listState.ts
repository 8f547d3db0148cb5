/** What the list of jobs shows, as its address says it. */
import type { Query } from "../../lib/address";
import type { JobRow } from "../../api/model";
import type { Sort } from "../../components/Table";

export interface ListState {
  text: string;
  status: string;
  experiment: string;
  owner: string;
  tag: string;
  archived: boolean;
  grouped: boolean;
  sort: Sort | null;
  /** `metrics.loss`, `params.x`, `inputs.lr`; null: those that most jobs have. */
  columns: string[] | null;
  limit: number;
}

export const PAGE = 50;
const MOST = 1000;

export function readState(query: URLSearchParams): ListState {
  const columns = query.getAll("column").filter((name) => /^(metrics|params|inputs)\../.test(name));
  const limit = Number(query.get("limit"));
  const sort = query.get("sort");
  return {
    text: query.get("text") ?? "",
    status: query.get("status") ?? "",
    experiment: query.get("experiment") ?? "",
    owner: query.get("owner") ?? "",
    tag: query.get("tag") ?? "",
    archived: query.get("archived") === "1",
    grouped: query.get("group") === "1",
    sort: sort ? { by: sort, descending: query.get("descending") === "1" } : null,
    columns: query.has("column") ? columns : null,
    limit: Number.isInteger(limit) && limit > PAGE ? Math.min(limit, MOST) : PAGE,
  };
}

/** The list as the server is asked for it. Without chosen columns all are read, of few jobs. */
export function listQuery(state: ListState, columns: readonly string[] | null): Query {
  return {
    text: state.text,
    status: state.status,
    experiment_name: state.experiment,
    owner: state.owner,
    tag: state.tag,
    archived: state.archived ? "only" : "",
    sort: state.sort?.by,
    descending: state.sort?.descending,
    column: columns ?? ["metrics", "params", "inputs"],
    limit: columns ? state.limit : Math.min(state.limit, 100),
  };
}

/** All columns that rows have, the most frequent first. */
export function columnsOf(rows: readonly JobRow[]): string[] {
  const counts = new Map<string, number>();
  for (const row of rows) {
    for (const group of ["metrics", "inputs", "params"] as const) {
      for (const [key, value] of Object.entries(row[group] ?? {})) {
        if (typeof value === "object") continue;
        const name = `${group}.${key}`;
        counts.set(name, (counts.get(name) ?? 0) + 1);
      }
    }
  }
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([name]) => name);
}

/** Two metrics and two inputs that most of these jobs have; what ranks and machines log comes last. */
export function usualColumns(rows: readonly JobRow[]): string[] {
  const ofRank = (name: string): boolean => /(^|[./_-])rank[_-]?\d+$|^metrics\.system\//.test(name);
  const all = columnsOf(rows).sort((a, b) => Number(ofRank(a)) - Number(ofRank(b)));
  const first = (group: string): string[] => all.filter((name) => name.startsWith(group)).slice(0, 2);
  return [...first("metrics."), ...first("inputs.")];
}

/** `metrics.train loss` → the group and the key. */
export function splitColumn(name: string): ["metrics" | "params" | "inputs", string] {
  const dot = name.indexOf(".");
  return [name.slice(0, dot) as "metrics" | "params" | "inputs", name.slice(dot + 1)];
}
