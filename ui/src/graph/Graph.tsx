/** Boxes and arrows as a drawing to move in.
 *
 * Owns: the drawing, wheel, pointers and keys. Leaves: positions to layout.ts, what is in the boxes
 * and the table of the same to who calls.
 * Always: to a screen reader it is one picture with a label; a table beside it holds the same. Only
 * the frame takes the focus: in it, arrow keys move from box to box and Enter opens one.
 */
import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useCallback, useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { StatusSign, toneOf } from "../components/Badge";
import { Button } from "../components/Button";
import { Icon } from "../components/Icon";
import { Panel } from "../components/Panel";
import { count, cut } from "../lib/format";
import { save } from "../lib/save";
import { type Box, BOX_HEIGHT, type Direction, layoutOf, type Layout, nextBox } from "./layout";
import { type GraphNode, isDrawn, MOST_DRAWN } from "./nodes";
import { toSvg } from "./picture";
import { type Area, begun, firstScale, fitted, moved, showing, SMALL, type View, zoomed } from "./view";

const NARROW = 640;
const [LEAST_HEIGHT, MOST_HEIGHT] = [160, 560];
/** On a phone the page must still scroll beside it. */
const MOST_HEIGHT_NARROW = 420;
const CLICK_PX = 4;
const ZOOM = 1.25;
/** How much wider than the letters that `cut` counts with. */
const NAME_LETTERS = 1.25;

interface Props {
  /** Of the file that it is saved as. */
  name: string;
  title: string;
  /** What its boxes are, in the plural. */
  of: string;
  summary: string;
  nodes: readonly GraphNode[];
  /** Keep it between calls: arrows are drawn again when it changes. */
  selected: readonly string[];
  /** What is selected never changes: the graph begins there, and has the direction that shows all. */
  isAround?: boolean;
  onOpen: (id: string) => void;
  onClose?: () => void;
  children?: ComponentChildren;
}

export function Graph(props: Props) {
  if (isDrawn(props.nodes)) return <Drawing {...props} />;
  return (
    <Panel flush title={props.title} aside={<span>{props.summary}</span>}>
      <p class="graph-note">A graph is drawn of up to {count(MOST_DRAWN)} {props.of}; the table lists all of these.</p>
      {props.children}
    </Panel>
  );
}

function Drawing({ name, title, of, summary, nodes, selected, isAround, onOpen, onClose, children }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const drawing = useRef<SVGSVGElement>(null);
  const width = useFrameWidth(frame);
  const isNarrow = !!width && width < NARROW;
  const most = isNarrow ? MOST_HEIGHT_NARROW : MOST_HEIGHT;
  const keys = useId();
  const shape = JSON.stringify(nodes.map((node) => [node.id, ...node.after]));
  const layouts = useMemo(() => new Map<Direction, Layout>(), [shape]);
  const toward = (direction: Direction): Layout => {
    const layout = layouts.get(direction) ?? layoutOf(nodes.map((node) => ({ name: node.id, after: [...node.after.keys()] })), direction);
    layouts.set(direction, layout);
    return layout;
  };
  const isAllShown = (layout: Layout): boolean => fitted(layout, { width, height: most }).scale >= SMALL;
  const layout = toward(isNarrow || (isAround && width && !isAllShown(toward("right")) && isAllShown(toward("down"))) ? "down" : "right");
  const titles = useMemo(() => new Map(nodes.map((node) => [node.id, node.after])), [shape]);
  // As high as all of it needs at the width that there is, within limits.
  const first = width ? firstScale(layout, { width, height: most }) : 1;
  const height = Math.min(most, Math.max(LEAST_HEIGHT, Math.ceil(layout.height * first)));
  const area: Area = { width: width || NARROW, height };
  const [chosen, setView] = useState<{ layout: Layout; view: View } | null>(null);
  const firstSelected = selected[0] ?? "";
  const firstBox = layout.boxes.find((box) => isAround && box.name === firstSelected) ?? layout.boxes[0];
  const start = firstBox ? begun(layout, area, firstBox) : fitted(layout, area);
  const view = chosen?.layout === layout ? chosen.view : start;
  // Until somebody moves it, it goes along with the frame.
  const change = useCallback((to: (view: View) => View): void => setView((before) => {
    const now = before?.layout === layout ? before.view : start;
    const next = to(now);
    return next.x === now.x && next.y === now.y && next.scale === now.scale ? before : { layout, view: next };
  }), [layout, area.width, area.height]);
  const all = fitted(layout, area).scale;
  const isWhole = layout.width * view.scale <= area.width && layout.height * view.scale <= area.height;
  const [cursor, setCursor] = useState("");
  const [isKeyed, setKeyed] = useState(false);
  const current = layout.boxes.some((box) => box.name === cursor) ? cursor : firstSelected || layout.boxes[0]?.name || "";

  const show = (id: string): void => {
    const box = layout.boxes.find((each) => each.name === id);
    if (box) change((before) => showing(before, box, area));
  };
  // What was chosen, or what a narrower frame would hide, comes into sight.
  useEffect(() => {
    if (firstSelected && width) show(firstSelected);
  }, [firstSelected, layout, width > 0, area.width]);

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const onWheel = (event: WheelEvent): void => {
      const { left, top } = element.getBoundingClientRect();
      const pixels = event.deltaMode ? event.deltaY * 16 : event.deltaY;
      const next = zoomed(view, Math.exp(-Math.max(-200, Math.min(200, pixels)) / 400), { x: event.clientX - left, y: event.clientY - top }, all);
      // At either end the page scrolls on.
      if (next.scale === view.scale) return;
      event.preventDefault();
      change(() => next);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [view, change, all]);

  const around = (factor: number): void => change((before) => zoomed(before, factor, { x: area.width / 2, y: area.height / 2 }, all));
  const fit = (): void => setView({ layout, view: fitted(layout, area) });
  const { isDragged, ...pointers } = usePointers(frame, (dx, dy) => change((before) => moved(before, dx, dy, layout, area)), (factor, at) => change((before) => zoomed(before, factor, at, all)));
  const nodeAt = (event: Event): string => (event.target as Element).closest<SVGElement>("[data-node]")?.dataset.node ?? "";
  const onClick = (event: MouseEvent): void => {
    const id = nodeAt(event);
    if (!id || isDragged()) return;
    setCursor(id);
    onOpen(id);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    setKeyed(true);
    const next = nextBox(layout, current, event.key);
    if (next) {
      setCursor(next);
      show(next);
    } else if (event.key === "Enter" || event.key === " ") onOpen(current);
    else if (event.key === "Escape" && onClose) onClose();
    else if (event.key === "+" || event.key === "=") around(ZOOM);
    else if (event.key === "-") around(1 / ZOOM);
    else if (event.key === "0") fit();
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onFocus = (): void => {
    if (!frame.current?.matches(":focus-visible")) return;
    setKeyed(true);
    show(current);
  };
  return (
    <div class="graph">
      <Panel flush title={title} aside={<>
        <span>{summary}</span>
        <Button icon="plus" label="Zoom in" onClick={() => around(ZOOM)} />
        <Button icon="minus" label="Zoom out" onClick={() => around(1 / ZOOM)} />
        <Button onClick={fit} title="Show all of the graph">Fit</Button>
        <Button icon="download" title="Save the graph as SVG" onClick={() => { if (drawing.current) save(toSvg(drawing.current, layout, `Graph of ${name}`), `${name}.svg`); }}>SVG</Button>
      </>}>
        <div
          ref={frame} class={`graph-frame${isKeyed ? " is-keyed" : ""}${isWhole ? " is-whole" : ""}`} style={{ height: `${height}px` }} tabIndex={0} role="group" aria-label={`Graph of the ${of}`} aria-describedby={keys}
          onClick={onClick} onKeyDown={onKeyDown} onFocus={onFocus} onPointerDownCapture={() => setKeyed(false)} {...pointers}
        >
          <svg ref={drawing} class="graph-drawing" width="100%" height="100%" role="img" aria-label={`Graph of ${summary}. The table holds the same.`}>
            <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
              <Still layout={layout} titles={titles} selected={selected} />
              {nodes.map((node, at) => {
                const box = layout.boxes[at];
                return box && <NodeBox key={node.id} node={node} box={box} isSelected={selected.includes(node.id)} isCurrent={node.id === current} />;
              })}
            </g>
          </svg>
        </div>
        <p id={keys} class="visually-hidden">Arrow keys move between {of}, Enter opens one, plus and minus zoom, 0 shows all.</p>
        <p class="visually-hidden" role="status">{nodes.find((node) => node.id === cursor)?.say()}</p>
        {children}
      </Panel>
    </div>
  );
}

/** What moves only with the layout: frames and arrows. */
const Still = memo(function Still({ layout, titles, selected }: { layout: Layout; titles: ReadonlyMap<string, ReadonlyMap<string, string>>; selected: readonly string[] }) {
  return (
    <>
      {layout.frames.map((frame) => (
        <g key={frame.name}>
          <rect class="graph-nested" x={frame.x} y={frame.y} width={frame.width} height={frame.height} rx={8} />
          <text class="graph-nested-name" x={frame.x + 14} y={frame.y + 20}>{cut(frame.label, frame.width - 24)}<title>{frame.name}</title></text>
        </g>
      ))}
      {[false, true].map((isOn) => (
        <g key={String(isOn)} class={isOn ? "is-on" : ""}>
          {layout.arrows.filter((arrow) => (selected.includes(arrow.from) || selected.includes(arrow.to)) === isOn).map((arrow) => (
            <g key={`${arrow.from}\n${arrow.to}`}>
              <title>{titles.get(arrow.to)?.get(arrow.from)}</title>
              <path class="graph-near" data-live d={arrow.path} /><path class="graph-arrow" d={arrow.path} /><path class="graph-head" d={arrow.head} />
            </g>
          ))}
        </g>
      ))}
    </>
  );
});

const NodeBox = memo(function NodeBox({ node, box, isSelected, isCurrent }: { node: GraphNode; box: Box; isSelected: boolean; isCurrent: boolean }) {
  const { status, icon } = node;
  const { x, y, width, height } = box;
  const middle = y + BOX_HEIGHT - 17;
  return (
    <g class={`graph-node${status ? ` graph-${toneOf(status)}` : ""}${node.isDashed ? " is-dashed" : ""}${node.opens ? " opens" : ""}`} data-node={node.id}>
      <title>{node.title}</title>
      {isCurrent && <rect class="graph-cursor" data-live x={x - 3} y={y - 3} width={width + 6} height={height + 6} rx={9} />}
      <rect class={`graph-box${isSelected ? " is-selected" : ""}`} x={x} y={y} width={width} height={height} rx={6} />
      {status && <rect class="graph-tone" x={x} y={y + 8} width={4} height={height - 16} rx={2} />}
      <text class="graph-name" x={x + 14} y={y + 21}>{cut(node.label, (width - 26) / NAME_LETTERS)}</text>
      <g transform={`translate(${x + 14} ${middle - 7})`}>{status ? <StatusSign status={status} /> : icon && <Icon name={icon} size={14} />}</g>
      <text class="graph-word" x={x + 34} y={middle + 4}>{node.word}</text>
      {node.time && <text class="graph-time" x={x + width - 12} y={middle + 4} text-anchor="end">{node.time}</text>}
    </g>
  );
});

function useFrameWidth(frame: preact.RefObject<HTMLDivElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const measure = (): void => setWidth(element.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return width;
}

/** One pointer drags, two zoom; what was a drag is no click. */
function usePointers(frame: preact.RefObject<HTMLDivElement | null>, move: (dx: number, dy: number) => void, zoom: (factor: number, at: { x: number; y: number }) => void) {
  const state = useRef({ down: new Map<number, { x: number; y: number }>(), travel: 0 });
  const { current } = state;
  const onPointerDown = (event: PointerEvent): void => {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    if (!current.down.size) current.travel = 0;
    current.down.set(event.pointerId, { x: event.clientX, y: event.clientY });
  };
  const onPointerMove = (event: PointerEvent): void => {
    const before = current.down.get(event.pointerId);
    if (!before) return;
    if (!event.buttons) {
      // It was let go elsewhere.
      current.down.delete(event.pointerId);
      return;
    }
    const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
    const isDrag = current.travel > CLICK_PX;
    current.travel += Math.hypot(dx, dy);
    const other = [...current.down].find(([id]) => id !== event.pointerId)?.[1];
    current.down.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (other && frame.current) {
      const { left, top } = frame.current.getBoundingClientRect();
      const apart = (point: { x: number; y: number }): number => Math.hypot(point.x - other.x, point.y - other.y) || 1;
      zoom(apart({ x: event.clientX, y: event.clientY }) / apart(before), { x: (event.clientX + other.x) / 2 - left, y: (event.clientY + other.y) / 2 - top });
      current.travel += CLICK_PX + 1;
    }
    if (!isDrag) return;
    // Captured only now: a click belongs to the box under it.
    if (!frame.current?.hasPointerCapture(event.pointerId)) frame.current?.setPointerCapture(event.pointerId);
    move(dx / current.down.size, dy / current.down.size);
  };
  const onPointerUp = (event: PointerEvent): void => void current.down.delete(event.pointerId);
  return { isDragged: () => current.travel > CLICK_PX, onPointerDown, onPointerMove, onPointerUp, onPointerCancel: onPointerUp };
}
