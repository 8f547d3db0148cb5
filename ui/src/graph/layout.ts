/** Where the boxes of a graph, the arrows between them and the frames of nested pipelines are.
 *
 * Owns: layers by the longest path, the order in a layer, positions; all without a document.
 * Leaves: drawing to Graph.tsx.
 * Always: no two boxes overlap, a frame holds the steps of its nested pipeline and no others, and
 * an arrow passes other steps by rather than crossing them. The same steps give the same picture.
 *
 * A nested pipeline is laid out by itself and is then one node among the others. `along` runs from
 * layer to layer, `across` within one; only `toPlane` knows which of them is x.
 */

/** From left to right, or from top to bottom. */
export type Direction = "right" | "down";

export interface LaidStep {
  name: string;
  /** The steps that it takes outputs of. */
  after: readonly string[];
}

export interface Box {
  name: string;
  /** The last part of a name with dots. */
  label: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Arrow {
  from: string;
  to: string;
  path: string;
  /** A triangle that ends at the box. */
  head: string;
}

export interface Layout {
  width: number;
  height: number;
  boxes: Box[];
  arrows: Arrow[];
  /** Of nested pipelines, the outer one before the inner one. */
  frames: Box[];
}

export const [BOX_WIDTH, BOX_HEIGHT] = [188, 52];
const [LAYER_GAP, BOX_GAP, LINE_GAP] = [56, 20, 12];
const [FRAME_PADDING, FRAME_HEAD, MARGIN] = [14, 30, 16];
const [ORDER_SWEEPS, PLACE_SWEEPS] = [8, 8];
/** Beyond that, arrows take the straight way: their detours would take more room than the steps. */
const MOST_LINES = 3000;
const HEAD = 7;

interface Point { along: number; across: number }
interface Size { along: number; across: number }

interface Node {
  id: string;
  /** Null for a place where a line passes a layer. */
  group: Group | null;
  size: Size;
  layer: number;
  at: Point;
}

/** What is laid out together: the steps of one pipeline, and in place of nested ones their groups. */
interface Group {
  name: string;
  size: Size;
  /** Relative to the group. */
  nodes: Node[];
  layers: Node[][];
  layerStarts: number[];
  layerSizes: number[];
  lines: Map<string, Node>;
  nodeOf: Map<string, Node>;
}

interface Link { from: string; to: string }

/** `steps` in the order in which they can run, as the server lists them. */
export function layoutOf(steps: readonly LaidStep[], direction: Direction): Layout {
  if (!steps.length) return { width: 0, height: 0, boxes: [], arrows: [], frames: [] };
  const names = new Set(steps.map((step) => step.name));
  const links = steps.flatMap((step) => [...new Set(step.after)].filter((from) => names.has(from) && from !== step.name).map((from) => ({ from, to: step.name })));
  const sizes = { step: direction === "right" ? { along: BOX_WIDTH, across: BOX_HEIGHT } : { along: BOX_HEIGHT, across: BOX_WIDTH }, direction };
  const top = groupOf("", steps.map((step) => step.name), links, sizes);
  const toPlane = ({ along, across }: Point): [number, number] => (direction === "right" ? [along + MARGIN, across + MARGIN] : [across + MARGIN, along + MARGIN]);
  const boxOf = (name: string, at: Point, size: Size): Box => {
    const [x, y] = toPlane(at);
    const [width, height] = direction === "right" ? [size.along, size.across] : [size.across, size.along];
    return { name, label: name.slice(name.lastIndexOf(".") + 1), x, y, width, height };
  };
  const boxes: Box[] = [];
  const frames: Box[] = [];
  const collect = (group: Group, origin: Point): void => {
    for (const node of group.nodes) {
      const at = plus(origin, node.at);
      if (node.group) {
        frames.push(boxOf(node.id, at, node.size));
        collect(node.group, at);
      } else boxes.push(boxOf(node.id, at, node.size));
    }
  };
  collect(top, { along: 0, across: 0 });
  const order = new Map(steps.map((step, at) => [step.name, at]));
  boxes.sort((a, b) => (order.get(a.name) ?? 0) - (order.get(b.name) ?? 0));
  const [width, height] = toPlane({ along: top.size.along + MARGIN, across: top.size.across + MARGIN });
  const arrows = links.map((link) => ({ ...link, ...drawn(routeOf(top, link), toPlane) }));
  return { width, height, boxes, arrows, frames };
}

const plus = (a: Point, b: Point): Point => ({ along: a.along + b.along, across: a.across + b.across });

interface Sizes { step: Size; direction: Direction }

/** What stands for a step in a group: the step itself, or the nested pipeline that it is in. */
function memberOf(group: string, step: string): string | null {
  if (group && !step.startsWith(`${group}.`)) return null;
  const start = group ? group.length + 1 : 0;
  const dot = step.indexOf(".", start);
  return dot < 0 ? step : step.slice(0, dot);
}

function groupOf(name: string, steps: readonly string[], links: readonly Link[], sizes: Sizes): Group {
  const inside = new Map<string, string[]>();
  for (const step of steps) {
    const member = memberOf(name, step) ?? step;
    add(inside, member, step);
  }
  const nodes: Node[] = [...inside].map(([id, members]) => {
    const group = members.length === 1 && members[0] === id ? null : groupOf(id, members, links, sizes);
    return { id, group, size: group ? group.size : sizes.step, layer: 0, at: { along: 0, across: 0 } };
  });
  const nodeOf = new Map(nodes.map((node) => [node.id, node]));
  setLayers(nodes, linksBetween(name, links, nodeOf));
  const [lines, neighbours] = linesOf(name, links, nodes, nodeOf);
  const layers: Node[][] = [];
  for (const node of [...nodes, ...lines.values()]) (layers[node.layer] ??= []).push(node);
  for (let at = 0; at < layers.length; at += 1) layers[at] ??= [];
  order(layers, neighbours);
  const group: Group = { name, size: { along: 0, across: 0 }, nodes, layers, layerStarts: [], layerSizes: [], lines, nodeOf };
  place(group, neighbours, sizes);
  return group;
}

function add<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** Between different members of a group; those from or to elsewhere are left out. */
function linksBetween(group: string, links: readonly Link[], nodeOf: ReadonlyMap<string, Node>): [Node, Node][] {
  return links.flatMap(({ from, to }) => {
    const [start, end] = [nodeOf.get(memberOf(group, from) ?? ""), nodeOf.get(memberOf(group, to) ?? "")];
    return start && end && start !== end ? [[start, end] as [Node, Node]] : [];
  });
}

/** The longest path to each node. Two nested pipelines may take of each other: what would close such
 * a circle counts for nothing.
 */
function setLayers(nodes: readonly Node[], links: readonly [Node, Node][]): void {
  const before = new Map<Node, Node[]>();
  for (const [start, end] of links) add(before, end, start);
  const state = new Map<Node, "open" | "done">();
  const visit = (first: Node): void => {
    // Without recursion: a pipeline may be one long chain.
    const path: [Node, Node[]][] = [[first, [...(before.get(first) ?? [])]]];
    state.set(first, "open");
    while (path.length) {
      const [node, left] = path[path.length - 1] as [Node, Node[]];
      const next = left.pop();
      if (!next) {
        state.set(node, "done");
        path.pop();
        const under = path.at(-1)?.[0];
        if (under) under.layer = Math.max(under.layer, node.layer + 1);
      } else if (state.get(next) === "done") node.layer = Math.max(node.layer, next.layer + 1);
      else if (!state.has(next)) {
        state.set(next, "open");
        path.push([next, [...(before.get(next) ?? [])]]);
      }
    }
  };
  for (const node of nodes) if (!state.has(node)) visit(node);
}

type Neighbours = { before: Map<Node, Node[]>; after: Map<Node, Node[]> };

/** Where lines pass layers, one for all arrows of a step, and what each node is beside. */
function linesOf(group: string, links: readonly Link[], nodes: readonly Node[], nodeOf: ReadonlyMap<string, Node>): [Map<string, Node>, Neighbours] {
  const last = Math.max(0, ...nodes.map((node) => node.layer));
  const lines = new Map<string, Node>();
  const neighbours: Neighbours = { before: new Map(), after: new Map() };
  const joined = new Set<string>();
  const join = (start: Node, end: Node): void => {
    const key = `${start.id}\n${end.id}`;
    if (joined.has(key)) return;
    joined.add(key);
    add(neighbours.after, start, end);
    add(neighbours.before, end, start);
  };
  const lineAt = (from: string, layer: number): Node => {
    const id = lineId(from, layer);
    const found = lines.get(id);
    if (found) return found;
    const line: Node = { id, group: null, size: { along: 0, across: 0 }, layer, at: { along: 0, across: 0 } };
    lines.set(id, line);
    return line;
  };
  for (const { from, to } of links) {
    const [start, end] = [nodeOf.get(memberOf(group, from) ?? ""), nodeOf.get(memberOf(group, to) ?? "")];
    if (start === end) continue;
    let node = start;
    for (let layer = start ? start.layer + 1 : 0; layer < (end ? end.layer : last + 1) && lines.size < MOST_LINES; layer += 1) {
      const line = lineAt(from, layer);
      if (node) join(node, line);
      node = line;
    }
    if (node && end && node.layer < end.layer) join(node, end);
  }
  return [lines, neighbours];
}

const lineId = (from: string, layer: number): string => `\n${from}\n${layer}`;

/** By the mean of the neighbours, forth and back; the order with the fewest crossings stays. */
function order(layers: Node[][], neighbours: Neighbours): void {
  let best = layers.map((layer) => [...layer]);
  let fewest = Infinity;
  // Relative to the layer's length, so that those of short and long layers can be compared.
  const positions = new Map<Node, number>();
  const note = (layer: readonly Node[]): void => layer.forEach((node, at) => positions.set(node, (at + 0.5) / layer.length));
  layers.forEach(note);
  for (let sweep = 0; sweep < ORDER_SWEEPS && fewest > 0; sweep += 1) {
    const isForth = sweep % 2 === 0;
    for (const layer of isForth ? layers.slice(1) : layers.slice(0, -1).reverse()) {
      const beside = isForth ? neighbours.before : neighbours.after;
      const own = new Map(layer.map((node, at) => [node, mean((beside.get(node) ?? []).map((each) => positions.get(each) ?? 0)) ?? positions.get(node) ?? at]));
      layer.sort((a, b) => (own.get(a) ?? 0) - (own.get(b) ?? 0));
      note(layer);
    }
    const crossings = crossingsOf(layers, neighbours);
    if (crossings < fewest) {
      fewest = crossings;
      best = layers.map((layer) => [...layer]);
    }
  }
  best.forEach((layer, at) => { layers[at] = layer; });
}

function mean(values: readonly number[]): number | null {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

function crossingsOf(layers: readonly Node[][], neighbours: Neighbours): number {
  let crossings = 0;
  for (let at = 0; at + 1 < layers.length; at += 1) {
    const positions = new Map(layers[at + 1]?.map((node, position) => [node, position]));
    const ends = (layers[at] ?? []).flatMap((node) => (neighbours.after.get(node) ?? []).map((each) => positions.get(each)).filter((each): each is number => each !== undefined).sort((a, b) => a - b));
    // Of each end, how many ends before it lie beyond it.
    const seen = new Array<number>((layers[at + 1]?.length ?? 0) + 1).fill(0);
    ends.forEach((end, many) => {
      let upTo = 0;
      for (let i = end + 1; i > 0; i -= i & -i) upTo += seen[i] ?? 0;
      crossings += many - upTo;
      for (let i = end + 1; i < seen.length; i += i & -i) seen[i] = (seen[i] ?? 0) + 1;
    });
  }
  return crossings;
}

/** Each node as near to the middle of its neighbours as the order and the gaps let it be. */
function place(group: Group, { before, after }: Neighbours, sizes: Sizes): void {
  const { layers } = group;
  const isNested = group.name !== "";
  const start = isNested ? { along: sizes.direction === "right" ? FRAME_PADDING : FRAME_HEAD, across: sizes.direction === "right" ? FRAME_HEAD : FRAME_PADDING } : { along: 0, across: 0 };
  let along = start.along;
  for (const layer of layers) {
    const thickness = Math.max(0, ...layer.map((node) => node.size.along));
    group.layerStarts.push(along);
    group.layerSizes.push(thickness);
    for (const node of layer) node.at.along = along;
    along += thickness + LAYER_GAP;
    let across = start.across;
    layer.forEach((node, at) => {
      if (at) across += gapBetween(layer[at - 1], node);
      node.at.across = across;
      across += node.size.across;
    });
  }
  const middle = (node: Node): number => node.at.across + node.size.across / 2;
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep += 1) {
    const isForth = sweep % 2 === 0;
    const isLast = sweep >= PLACE_SWEEPS - 2;
    for (const layer of isForth ? layers : [...layers].reverse()) {
      const wished = layer.map((node) => {
        const sides = isLast ? [...(before.get(node) ?? []), ...(after.get(node) ?? [])] : (isForth ? before : after).get(node) ?? [];
        return mean(sides.map(middle)) ?? middle(node);
      });
      settle(layer, wished);
    }
  }
  const all = layers.flat();
  const least = Math.min(...all.map((node) => node.at.across));
  for (const node of all) node.at.across = Math.round(node.at.across + start.across - least);
  const end = Math.max(...all.map((node) => node.at.across + node.size.across));
  const padding = isNested ? FRAME_PADDING : 0;
  group.size = { along: along - LAYER_GAP + padding, across: end + padding };
}

function gapBetween(one: Node | undefined, other: Node): number {
  return one && isLine(one) && isLine(other) ? LINE_GAP : BOX_GAP;
}

const isLine = (node: Node): boolean => node.size.across === 0;

/** The least sum of squared distances to the wishes that keeps order and gaps: nodes that would
 * overlap form a block, which lies at the mean of its members' wishes.
 */
function settle(layer: readonly Node[], wished: readonly number[]): void {
  const offsets: number[] = [];
  let offset = 0;
  layer.forEach((node, at) => {
    const one = layer[at - 1];
    if (one) offset += one.size.across / 2 + gapBetween(one, node) + node.size.across / 2;
    offsets.push(offset);
  });
  const blocks: { sum: number; many: number }[] = [];
  layer.forEach((_, at) => {
    let block = { sum: (wished[at] ?? 0) - (offsets[at] ?? 0), many: 1 };
    for (let one = blocks.at(-1); one && one.sum / one.many > block.sum / block.many; one = blocks.at(-1)) {
      blocks.pop();
      block = { sum: one.sum + block.sum, many: one.many + block.many };
    }
    blocks.push(block);
  });
  let at = 0;
  for (const { sum, many } of blocks) {
    for (let left = many; left > 0; left -= 1, at += 1) {
      const node = layer[at];
      if (node) node.at.across = sum / many + (offsets[at] ?? 0) - node.size.across / 2;
    }
  }
}

/** An arrow's way: pieces that run straight along, joined by curves in the gaps between layers. */
function routeOf(top: Group, link: Link): [Point, Point][] {
  const pieces: [Point, Point][] = [];
  const through = (group: Group, origin: Point): void => {
    const [start, end] = [link.from, link.to].map((step) => group.nodeOf.get(memberOf(group.name, step) ?? ""));
    if (start && start === end) {
      if (start.group) through(start.group, plus(origin, start.at));
      return;
    }
    const across = (node: Node): number => origin.across + node.at.across + node.size.across / 2;
    const startOf = (layer: number): number => origin.along + (group.layerStarts[layer] ?? 0);
    const endOf = (layer: number): number => startOf(layer) + (group.layerSizes[layer] ?? 0);
    const passing = (from: number, to: number): void => {
      for (let layer = from; layer < to; layer += 1) {
        const line = group.lines.get(lineId(link.from, layer));
        if (line) pieces.push([{ along: startOf(layer), across: across(line) }, { along: endOf(layer), across: across(line) }]);
      }
    };
    if (start) {
      if (start.group) through(start.group, plus(origin, start.at));
      else pieces.push([{ along: origin.along + start.at.along + start.size.along, across: across(start) }, { along: endOf(start.layer), across: across(start) }]);
      const last = pieces.at(-1);
      if (start.group && last) last[1] = { along: endOf(start.layer), across: last[1].across };
    }
    passing(start ? start.layer + 1 : 0, end ? end.layer : group.layers.length);
    if (!end) return;
    if (end.group) through(end.group, plus(origin, end.at));
    else pieces.push([{ along: startOf(end.layer), across: across(end) }, { along: startOf(end.layer), across: across(end) }]);
  };
  through(top, { along: 0, across: 0 });
  return pieces;
}

function drawn(pieces: readonly [Point, Point][], toPlane: (point: Point) => [number, number]): Pick<Arrow, "path" | "head"> {
  const say = (point: Point): string => toPlane(point).map((value) => String(Math.round(value * 10) / 10)).join(" ");
  let path = "";
  let at: Point | null = null;
  pieces.forEach(([start, end], index) => {
    const isLast = index === pieces.length - 1;
    const from = isLast ? { along: start.along - HEAD + 1, across: start.across } : start;
    if (!at) path += `M${say(start)}`;
    else {
      const bend: number = Math.max(18, (from.along - at.along) / 2);
      path += `C${say({ along: at.along + bend, across: at.across })} ${say({ along: from.along - bend, across: from.across })} ${say(from)}`;
    }
    if (!isLast && end.along !== start.along) path += `L${say(end)}`;
    at = isLast ? from : end;
  });
  const tip = pieces.at(-1)?.[0] ?? { along: 0, across: 0 };
  const head = `M${say(tip)}L${say({ along: tip.along - HEAD, across: tip.across - HEAD / 2 })}L${say({ along: tip.along - HEAD, across: tip.across + HEAD / 2 })}Z`;
  return { path, head };
}

/** The box that an arrow key leads to: what is joined by an arrow first, else the nearest there. */
export function nextBox(layout: Layout, from: string, key: string): string | null {
  const way = ({ ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] } as Record<string, [number, number]>)[key];
  const box = layout.boxes.find((each) => each.name === from);
  if (!way || !box) return null;
  const [dx, dy] = way;
  const joined = new Set(layout.arrows.flatMap((arrow) => (arrow.from === from ? [arrow.to] : arrow.to === from ? [arrow.from] : [])));
  let [found, nearest]: [string | null, number] = [null, Infinity];
  for (const each of layout.boxes) {
    const x = each.x + each.width / 2 - box.x - box.width / 2;
    const y = each.y + each.height / 2 - box.y - box.height / 2;
    const ahead = x * dx + y * dy;
    const aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (ahead <= 1) continue;
    const distance = (ahead + 2 * aside) * (joined.has(each.name) ? 0.25 : 1);
    if (distance < nearest) [found, nearest] = [each.name, distance];
  }
  return found;
}
