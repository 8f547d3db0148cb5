/** The rungs of ASHA or Hyperband, as their table takes them.
 *
 * Owns: their shape, which policies have them, their order. Leaves: drawing to RungsPanel.tsx.
 * Always: the order is that of `yard job show`: the highest first, and at each the best first.
 */
import type { components } from "../../api/types";

export type Rung = components["schemas"]["Rung"];

/** Whether trials pause at rungs with the policy of this name. */
export function hasRungs(policy: string): boolean {
  return policy === "asha" || policy === "hyperband";
}

export function highestFirst(rungs: readonly Rung[]): Rung[] {
  return [...rungs].sort((a, b) => b.interval - a.interval || a.bracket - b.bracket || a.rank - b.rank);
}

/** `3 promoted, 1 waiting, 5 stopped` */
export function sayDecisions(rungs: readonly Rung[]): string {
  const many = (decision: Rung["decision"]): number => rungs.filter((rung) => rung.decision === decision).length;
  return (["promoted", "waiting", "stopped", "ended"] as const)
    .map((decision) => [many(decision), decision] as const)
    .filter(([count]) => count > 0)
    .map(([count, decision]) => `${count} ${decision}`)
    .join(", ");
}

/** The head above the trials of a rung. */
export function rungName(rung: Pick<Rung, "bracket" | "interval">, hasBrackets: boolean): string {
  return hasBrackets ? `Interval ${rung.interval}, bracket ${rung.bracket}` : `Interval ${rung.interval}`;
}
