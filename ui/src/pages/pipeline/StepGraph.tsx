/** The steps of a pipeline as a drawing to move in.
 *
 * Owns: the drawing, wheel, pointers and keys. Leaves: positions to layout.ts, what is known of a
 * step to StepPanel.tsx.
 * Always: to a screen reader it is one picture with a label; the table below holds the same. Only
 * the frame takes the focus: in it, arrow keys move from step to step and Enter opens one.
 */
import { memo } from "preact/compat";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { StatusSign, toneOf } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Panel } from "../../components/Panel";
import { save } from "../../charts/picture";
import { duration } from "../../lib/format";
import { useNow } from "../../lib/now";
import { cut } from "../compare/plotting";
import { type Box, BOX_HEIGHT, layoutOf, type Layout, nextBox } from "./layout";
import { toSvg } from "./picture";
import { isRunning, sayProgress, sayStep, stateOf, type Step } from "./steps";
import { type Area, begun, firstScale, fitted, moved, showing, type View, zoomed } from "./view";

const NARROW = 640;
const [LEAST_HEIGHT, MOST_HEIGHT] = [220, 560];
/** On a phone the page must still scroll beside it. */
const MOST_HEIGHT_NARROW = 420;
const CLICK_PX = 4;
const ZOOM = 1.25;
/** How much wider than the letters that `cut` counts with. */
const NAME_LETTERS = 1.25;

interface Props {
  name: string;
  steps: readonly Step[];
  selected: string;
  onSelect: (name: string) => void;
}

export function StepGraph({ name, steps, selected, onSelect }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const drawing = useRef<SVGSVGElement>(null);
  const width = useFrameWidth(frame);
  const direction = width && width < NARROW ? "down" : "right";
  const shape = steps.map((step) => [step.name, ...Object.values(step.takes).map((taken) => taken.step)].join("\t")).join("\n");
  const layout = useMemo(() => layoutOf(steps.map((step) => ({ name: step.name, after: Object.values(step.takes).map((taken) => taken.step ?? "") })), direction), [shape, direction]);
  // As high as all of it needs at the width that there is, within limits.
  const most = direction === "down" ? MOST_HEIGHT_NARROW : MOST_HEIGHT;
  const first = width ? firstScale(layout, { width, height: most }) : 1;
  const height = Math.min(most, Math.max(LEAST_HEIGHT, Math.ceil(layout.height * first)));
  const area: Area = { width: width || NARROW, height };
  const [chosen, setView] = useState<{ layout: Layout; view: View } | null>(null);
  const start = layout.boxes[0] ? begun(layout, area, layout.boxes[0]) : fitted(layout, area);
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
  const current = layout.boxes.some((box) => box.name === cursor) ? cursor : selected || layout.boxes[0]?.name || "";

  const show = (step: string): void => {
    const box = layout.boxes.find((each) => each.name === step);
    if (box) change((before) => showing(before, box, area));
  };
  // What the address chose, or what a narrower frame would hide, comes into sight.
  useEffect(() => {
    if (selected && width) show(selected);
  }, [selected, layout, width > 0, area.width]);

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
  const stepAt = (event: Event): string => (event.target as Element).closest<SVGElement>("[data-step]")?.dataset.step ?? "";
  const onClick = (event: MouseEvent): void => {
    const step = stepAt(event);
    if (!step || isDragged()) return;
    setCursor(step);
    onSelect(step);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    setKeyed(true);
    const next = nextBox(layout, current, event.key);
    if (next) {
      setCursor(next);
      show(next);
    } else if (event.key === "Enter" || event.key === " ") onSelect(current);
    else if (event.key === "Escape" && selected) onSelect("");
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
  const said = steps.find((step) => step.name === current);
  return (
    <Panel flush title="Graph" aside={<>
      <span>{sayProgress(steps)}</span>
      <Button icon="plus" label="Zoom in" onClick={() => around(ZOOM)} />
      <Button icon="minus" label="Zoom out" onClick={() => around(1 / ZOOM)} />
      <Button onClick={fit} title="Show all of the graph">Fit</Button>
      <Button icon="download" title="Save the graph as SVG" onClick={() => { if (drawing.current) save(toSvg(drawing.current, layout, `Graph of ${name}`), `${name}.svg`); }}>SVG</Button>
    </>}>
      <div
        ref={frame} class={`graph-frame${isKeyed ? " is-keyed" : ""}${isWhole ? " is-whole" : ""}`} style={{ height: `${height}px` }} tabIndex={0} role="group" aria-label="Graph of the steps" aria-describedby="graph-keys"
        onClick={onClick} onKeyDown={onKeyDown} onFocus={onFocus} onPointerDownCapture={() => setKeyed(false)} {...pointers}
      >
        <svg ref={drawing} class="graph-drawing" width="100%" height="100%" role="img" aria-label={`Graph of ${sayProgress(steps)}. The table holds the same.`}>
          <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
            <Still layout={layout} selected={selected} />
            {steps.map((step, at) => {
              const box = layout.boxes[at];
              return box && <StepBox key={step.name} step={step} box={box} isSelected={step.name === selected} isCurrent={step.name === current} />;
            })}
          </g>
        </svg>
      </div>
      <p id="graph-keys" class="visually-hidden">Arrow keys move between steps, Enter opens one, plus and minus zoom, 0 shows all.</p>
      <p class="visually-hidden" role="status">{cursor && said ? sayStep(said, steps) : ""}</p>
    </Panel>
  );
}

/** What moves only with the layout: frames and arrows. */
const Still = memo(function Still({ layout, selected }: { layout: Layout; selected: string }) {
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
          {layout.arrows.filter((arrow) => (arrow.from === selected || arrow.to === selected) === isOn).map((arrow) => (
            <g key={`${arrow.from}\n${arrow.to}`}><path class="graph-arrow" d={arrow.path} /><path class="graph-head" d={arrow.head} /></g>
          ))}
        </g>
      ))}
    </>
  );
});

const StepBox = memo(function StepBox({ step, box, isSelected, isCurrent }: { step: Step; box: Box; isSelected: boolean; isCurrent: boolean }) {
  const { status, word } = stateOf(step);
  const tone = toneOf(status);
  const { x, y, width, height } = box;
  const middle = y + BOX_HEIGHT - 17;
  return (
    <g class={`graph-step graph-${tone}${step.reused_from ? " is-reused" : ""}`} data-step={step.name}>
      <title>{step.name}</title>
      {isCurrent && <rect class="graph-cursor" data-live x={x - 3} y={y - 3} width={width + 6} height={height + 6} rx={9} />}
      <rect class={`graph-box${isSelected ? " is-selected" : ""}`} x={x} y={y} width={width} height={height} rx={6} />
      <rect class="graph-tone" x={x} y={y + 8} width={4} height={height - 16} rx={2} />
      <text class="graph-name" x={x + 14} y={y + 21}>{cut(box.label, (width - 26) / NAME_LETTERS)}</text>
      <g transform={`translate(${x + 14} ${middle - 7})`}><StatusSign status={status} /></g>
      <text class="graph-status" x={x + 34} y={middle + 4}>{step.reused_from ? "Reused" : word}</text>
      <text class="graph-time" x={x + width - 12} y={middle + 4} text-anchor="end"><StepTime step={step} /></text>
    </g>
  );
});

/** Counts on while its job runs. */
function StepTime({ step }: { step: Step }) {
  const goesOn = isRunning(step) && step.duration_s == null;
  const now = useNow(goesOn ? 1000 : 0);
  if (!goesOn || !step.started_at) return <>{step.status || step.outcome ? duration(step.duration_s) : ""}</>;
  return <>{duration(Math.max(0, Math.floor((now - Date.parse(step.started_at)) / 1000)))}</>;
}

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
    // Captured only now: a click belongs to the step under it.
    if (!frame.current?.hasPointerCapture(event.pointerId)) frame.current?.setPointerCapture(event.pointerId);
    move(dx / current.down.size, dy / current.down.size);
  };
  const onPointerUp = (event: PointerEvent): void => void current.down.delete(event.pointerId);
  return { isDragged: () => current.travel > CLICK_PX, onPointerDown, onPointerMove, onPointerUp, onPointerCancel: onPointerUp };
}
