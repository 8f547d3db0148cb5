/** What a graph is drawn of. */
import type { ComponentChildren } from "preact";
import type { Status } from "../api/model";
import type { IconName } from "../components/Icon";

export const MOST_DRAWN = 300;
const MOST_ARROWS = 3000;

export interface GraphNode {
  /** What parts of it before dots have in common is in a frame. */
  id: string;
  label: string;
  /** For who points at it. */
  title: string;
  /** For those who don't see the graph. */
  say: () => string;
  /** Has a sign and a colour; what has none has an icon. */
  status?: Status | undefined;
  icon?: IconName;
  /** Beside the sign or icon. */
  word: string;
  time?: ComponentChildren;
  isDashed?: boolean;
  opens: boolean;
  /** The nodes that arrows come from, and what is said of the arrow. */
  after: ReadonlyMap<string, string>;
}

/** Larger graphs take long to lay out, and nobody reads them. */
export function isDrawn(nodes: readonly Pick<GraphNode, "after">[]): boolean {
  return nodes.length <= MOST_DRAWN && nodes.reduce((sum, node) => sum + node.after.size, 0) <= MOST_ARROWS;
}

/** `output → input` of each arrow by where it comes from. */
export function arrowsFrom(links: readonly { from: string; output: string; input: string }[]): Map<string, string> {
  const titles = new Map<string, string>();
  for (const { from, output, input } of links) {
    titles.set(from, [titles.get(from), [output, input].filter(Boolean).join(" → ")].filter(Boolean).join(", "));
  }
  return titles;
}
