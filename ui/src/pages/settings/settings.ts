/** People, tokens, quotas and the audit as the native API answers, and what a role may do. */
import type { components } from "../../api/types";
import { bytes, count, duration } from "../../lib/format";

export type User = components["schemas"]["User"];
export type Token = components["schemas"]["Token"];
export type NewToken = components["schemas"]["NewToken"];

/** Every workspace, in `User.roles`. */
export const EVERYWHERE = "*";
/** Each role may do what those before it may. */
export const ROLES = ["reader", "data scientist", "contributor", "owner"] as const;

export type Limit = components["schemas"]["QuotaLimit"];
export type QuotaRequest = components["schemas"]["QuotaRequestAnswer"];

export interface AuditLine {
  at: string;
  user: string;
  token?: string;
  job?: string;
  did: string;
  method: string;
  path: string;
  outcome: string;
  status: number;
  from: string;
  about?: Record<string, unknown>;
}

/** The higher one of a person's roles here and everywhere; null without any. */
export function roleIn(user: User, workspace: string): string | null {
  const held = [user.roles[workspace], user.roles[EVERYWHERE]].filter((role) => !!role);
  return held.sort((a, b) => rank(b) - rank(a))[0] ?? null;
}

function rank(role: string): number {
  return ROLES.indexOf(role as (typeof ROLES)[number]);
}

export function isServerOwner(user: User | undefined): boolean {
  return user?.roles[EVERYWHERE] === "owner";
}

/** Whether a role may change the workspace's settings. */
export function maySet(role: string | null | undefined): boolean {
  return !!role && rank(role) >= rank("contributor");
}

/** Those who own the workspace or the server: whom to ask. */
export function owners(users: readonly User[], workspace: string): string[] {
  return users.filter((user) => roleIn(user, workspace) === "owner").map((user) => user.name);
}

/** Who is limited by it. */
export function limitOf(user: string): string {
  if (user === "") return "all together";
  return user === "*" ? "each person" : user;
}

/** `run_time_s` → `run time`: its unit stands beside its number. */
export function quotaName(name: string): string {
  return name.replace(/_(s|bytes)$/, "").replace(/_/g, " ");
}

/** A limit's number with its unit. */
export function amount(name: string, value: number): string {
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_s")) return duration(value);
  return count(value);
}

const UNITS: Record<string, number> = {
  s: 1, m: 60, h: 3600, d: 86400, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12,
};

/** `12h`, `50 GB` or `4` → the number that the API takes; null for anything else. */
export function parseAmount(name: string, text: string): number | null {
  const [, digits, unit = ""] = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text.trim()) ?? [];
  if (!digits) return null;
  const isTime = name.endsWith("_s");
  const isSize = name.endsWith("_bytes");
  const known = isTime ? /^(s|m|h|d)?$/i : isSize ? /^([kmgt]?b)?$/i : /^$/;
  if (!known.test(unit)) return null;
  const value = Number(digits) * (UNITS[unit.toLowerCase()] ?? 1);
  return Number.isInteger(value) || isTime || isSize ? Math.round(value) : null;
}

/** Sessions of this page are tokens, too. */
export function isSession(token: Pick<Token, "name">): boolean {
  return /^(sign-in-)?page-/.test(token.name);
}

export function isExpired(token: Pick<Token, "expires_at">, now_ms: number): boolean {
  return token.expires_at !== null && Date.parse(token.expires_at) <= now_ms;
}

/** `{quota: "nodes", most: 6}` → `quota nodes, most 6`. */
export function aboutText(about: Record<string, unknown> | undefined): string {
  return Object.entries(about ?? {})
    .filter(([, value]) => value !== null && value !== "")
    .map(([key, value]) => `${key.replace(/_/g, " ")} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`)
    .join(", ");
}
