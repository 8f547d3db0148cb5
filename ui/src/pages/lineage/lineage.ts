/** What data, models and jobs were made of, and what was made of them, as its graph and its table show it.
 *
 * Owns: names and addresses of nodes. Leaves: which nodes there are to the server.
 */
import type { Status } from "../../api/model";
import type { components } from "../../api/types";
import { wordOf } from "../../components/Badge";
import type { IconName } from "../../components/Icon";
import { arrowsFrom, type GraphNode } from "../../graph/nodes";
import { href, jobHref } from "../../lib/address";
import { plural } from "../../lib/format";

type Schemas = components["schemas"];
/** Its status is empty where it is no job, or one that was deleted. */
export type LineageNode = Omit<Schemas["LineageNode"], "status"> & { status: Status | "" };
export type Lineage = Omit<Schemas["Lineage"], "nodes"> & { nodes: LineageNode[] };

const KINDS: Record<string, readonly [IconName, string]> = {
  job: ["jobs", "job"], data: ["data", "data asset"], model: ["models", "model"], path: ["folder", "path"],
  "online-deployment": ["endpoints", "online deployment"], "batch-deployment": ["endpoints", "batch deployment"],
};

export function isDeleted(node: LineageNode): boolean {
  return node.kind === "job" && !node.status;
}

/** Its page; null for what has none. */
export function hrefOf(workspace: string, node: LineageNode): string | null {
  const [endpoint = ""] = node.name.split("/");
  switch (node.kind) {
    case "job": return isDeleted(node) ? null : jobHref(workspace, node.name);
    case "data": return href(workspace, "data", [node.name, node.version]);
    case "model": return href(workspace, "models", [node.name, node.version]);
    case "online-deployment": return href(workspace, "endpoints", [endpoint]);
    case "batch-deployment": return href(workspace, "endpoints", ["batch", endpoint]);
    default: return null;
  }
}

/** Of a path, the last part of it. */
export function labelOf({ kind, name, version, display_name: shown }: LineageNode): string {
  if (kind === "path") return name.split("/").filter(Boolean).at(-1) ?? name;
  return shown || (version ? `${name}:${version}` : name);
}

export function kindOf(node: LineageNode): string {
  const word = KINDS[node.kind]?.[1] ?? node.kind;
  return word.charAt(0).toUpperCase() + word.slice(1);
}

export function iconOf(node: LineageNode): IconName {
  return KINDS[node.kind]?.[0] ?? "file";
}

export function wordFor(node: LineageNode): string {
  return node.status ? wordOf(node.status) : isDeleted(node) ? "Deleted" : kindOf(node);
}

/** `1 data asset, 3 jobs, 1 model` */
export function sayKinds(nodes: readonly LineageNode[]): string {
  const many = new Map<string, number>();
  for (const { kind } of nodes) many.set(kind, (many.get(kind) ?? 0) + 1);
  return [...many].map(([kind, number]) => plural(number, KINDS[kind]?.[1] ?? kind)).join(", ");
}

/** As a graph draws them, each by its number: names hold dots, which mean something there. */
export function graphOf({ of, nodes, edges }: Lineage): { nodes: GraphNode[]; selected: string[] } {
  const numbers = new Map(nodes.map((node, at) => [node.id, String(at)]));
  const labels = new Map(nodes.map((node) => [node.id, labelOf(node)]));
  const named = (ids: readonly string[]): string => [...new Set(ids)].map((id) => labels.get(id)).join(", ");
  return {
    selected: of.flatMap((id) => numbers.get(id) ?? []),
    nodes: nodes.map((node, at) => {
      const [before, after] = [edges.filter((edge) => edge.target === node.id), edges.filter((edge) => edge.source === node.id)];
      return {
        id: String(at),
        label: labelOf(node),
        title: node.name,
        say: () => [
          `${labelOf(node)}, ${wordFor(node).toLowerCase()}`,
          before.length ? `comes from ${named(before.map((edge) => edge.source))}` : "",
          after.length ? `used by ${named(after.map((edge) => edge.target))}` : "",
        ].filter(Boolean).join("; "),
        status: node.status || undefined,
        icon: iconOf(node),
        word: wordFor(node),
        opens: node.kind !== "path" && !isDeleted(node),
        after: arrowsFrom(before.map((edge) => ({ from: numbers.get(edge.source) ?? "", output: edge.output, input: edge.input }))),
      };
    }),
  };
}

/** `prepare (data → rows), digits:1` */
export function sayAfter(nodes: readonly GraphNode[], at: number): string {
  return [...(nodes[at]?.after ?? [])].map(([from, title]) => `${nodes[Number(from)]?.label}${title && ` (${title})`}`).join(", ");
}
