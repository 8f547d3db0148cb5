/** Parallel coordinates: an axis for each setting and result, a line for each job.
 *
 * Always: a part of an axis can be chosen by dragging or by keys, and is in the address; jobs
 * outside of it become faint. Keys on an axis: up takes away from its low end, down from its high
 * end, Escape gives all back.
 */
import { useState } from "preact/hooks";
import { cut } from "../../lib/format";
import { type Axis, type Mark, MarkLink, PlotFoot, sayMark, useWidth } from "./plotting";
import { type Brush, isWithin, lineThrough, ticksWithEnds } from "./scales";

const [HEIGHT, TOP, BOTTOM, SIDE, LEAST_GAP] = [320, 44, 16, 52, 90];
const KEY_STEP = 0.05;

interface Props {
  axes: readonly Axis[];
  marks: readonly Mark[];
  active: string;
  onActive: (name: string) => void;
  brushes: ReadonlyMap<string, Brush>;
  onBrush: (brushes: Map<string, Brush>) => void;
}

export function ParallelPlot({ axes, marks, active, onActive, brushes, onBrush }: Props) {
  const [box, room] = useWidth();
  const [drag, setDrag] = useState<{ id: string; start: number; end: number } | null>(null);
  const width = Math.max(room, 2 * SIDE + LEAST_GAP * (axes.length - 1));
  const gap = axes.length > 1 ? (width - 2 * SIDE) / (axes.length - 1) : 0;
  const toX = (axis: number): number => (axes.length > 1 ? SIDE + axis * gap : width / 2);
  const toY = (place: number): number => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  const shown = drag ? withBrush(brushes, drag.id, partOf(drag.start, drag.end)) : brushes;
  const placeOf = (mark: Mark) => (id: string): number | null => {
    const axis = axes.find((each) => each.dimension.id === id);
    return axis ? axis.scale.place(axis.dimension.values[mark.index] ?? null) : 1;
  };
  const onAxes = new Map([...shown].filter(([id]) => axes.some((axis) => axis.dimension.id === id)));
  const inside = new Set(marks.filter((mark) => isWithin(placeOf(mark), onAxes)).map((mark) => mark.job.name));
  const dimensions = axes.map((axis) => axis.dimension);
  const ordered = [...marks].sort((a, b) => Number(inside.has(a.job.name)) - Number(inside.has(b.job.name)));
  return (
    <>
      <div class="plot-frame" ref={box} tabIndex={0} role="region" aria-label="Parallel coordinates">
        <svg class={`plot${active ? " has-active" : ""}`} width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} role="group" aria-label={`Parallel coordinates of ${marks.length} jobs over ${dimensions.map((each) => each.name).join(", ")}`}>
          {ordered.map((mark) => {
            const path = lineThrough(axes.map((axis) => axis.scale.place(axis.dimension.values[mark.index] ?? null)), toX, toY);
            const names = `plot-line${inside.has(mark.job.name) ? "" : " is-out"}${active === mark.job.name ? " is-active" : ""}`;
            return (
              <MarkLink key={mark.job.name} mark={mark} many={marks.length} say={sayMark(mark, dimensions)} onActive={onActive}>
                <path class={names} d={path} style={{ stroke: mark.color }} /><path class="plot-hit" d={path} />
              </MarkLink>
            );
          })}
          {axes.map((axis, at) => (
            <AxisOf
              key={axis.dimension.id} axis={axis} x={toX(at)} toY={toY} room={gap || width} brush={shown.get(axis.dimension.id)} staying={inside.size} of={marks.length}
              onDrag={(start, end) => setDrag({ id: axis.dimension.id, start, end })}
              onChoose={(part) => { setDrag(null); onBrush(withBrush(brushes, axis.dimension.id, part)); }}
            />
          ))}
        </svg>
      </div>
      <PlotFoot mark={marks.find((mark) => mark.job.name === active)} dimensions={dimensions} hint={onAxes.size ? `${inside.size} of ${marks.length} jobs are within what was chosen.` : "Drag along an axis to choose a part of it."} />
    </>
  );
}

function AxisOf({ axis, x, toY, room, brush, staying, of, onDrag, onChoose }: {
  axis: Axis; x: number; toY: (place: number) => number; room: number; brush: Brush | undefined; staying: number; of: number;
  onDrag: (start: number, end: number) => void; onChoose: (part: Brush | null) => void;
}) {
  const [start, setStart] = useState<number | null>(null);
  const { dimension, scale } = axis;
  const [top, bottom] = [toY(1), toY(0)];
  const placeAt = (event: PointerEvent): number => {
    const frame = (event.currentTarget as SVGRectElement).getBoundingClientRect();
    // The rectangle begins 8 px above the axis and ends 8 px below.
    return Math.min(1, Math.max(0, 1 - (event.clientY - frame.top - 8) / (frame.height - 16)));
  };
  const onKey = (event: KeyboardEvent): void => {
    const { from, to } = brush ?? { from: 0, to: 1 };
    const next: Partial<Record<string, Brush | null>> = {
      ArrowUp: { from: Math.min(from + KEY_STEP, to - KEY_STEP), to }, ArrowDown: { from, to: Math.max(to - KEY_STEP, from + KEY_STEP) }, Escape: null, Delete: null,
    };
    const part = next[event.key];
    if (part === undefined) return;
    event.preventDefault();
    onChoose(part);
  };
  return (
    <g class="plot-axis">
      <text class="plot-name" x={x} y={18} text-anchor="middle"><title>{dimension.id}</title>{cut(dimension.name, room - 8)}</text>
      <text class="plot-kind" x={x} y={32} text-anchor="middle">{dimension.group === "metrics" ? "metric" : dimension.group === "inputs" ? "input" : "parameter"}{scale.kind === "log" ? ", log" : ""}</text>
      <line x1={x} x2={x} y1={top} y2={bottom} />
      {ticksWithEnds(scale, 0.07).map((tick) => <text key={tick.at} class="plot-tick" x={x - 7} y={toY(tick.at) + 4} text-anchor="end">{cut(tick.label, Math.min(room - 16, x - 8, 96))}</text>)}
      {brush && <rect class="plot-brush" x={x - 6} width={12} y={toY(brush.to)} height={Math.max(1, toY(brush.from) - toY(brush.to))} />}
      <rect
        class="plot-handle" x={x - 12} width={24} y={top - 8} height={bottom - top + 16} tabindex={0}
        role="slider" aria-orientation="vertical" aria-valuemin={0} aria-valuemax={1} aria-valuenow={Number((brush?.from ?? 0).toFixed(2))}
        aria-valuetext={brush ? `${Math.round(brush.from * 100)} to ${Math.round(brush.to * 100)} % of the axis; ${staying} of ${of} jobs` : "all of the axis"}
        aria-label={`Part of ${dimension.name}`} onKeyDown={onKey}
        onPointerDown={(event) => { event.currentTarget.setPointerCapture(event.pointerId); setStart(placeAt(event)); }}
        onPointerMove={(event) => { if (start !== null) onDrag(start, placeAt(event)); }}
        onPointerUp={(event) => { if (start !== null) onChoose(partOf(start, placeAt(event))); setStart(null); }}
        onPointerCancel={() => { setStart(null); onChoose(brush ?? null); }}
      />
    </g>
  );
}

/** A click, not a drag, chooses all. */
function partOf(start: number, end: number): Brush | null {
  return Math.abs(start - end) < 0.02 ? null : { from: Math.min(start, end), to: Math.max(start, end) };
}

function withBrush(brushes: ReadonlyMap<string, Brush>, id: string, part: Brush | null): Map<string, Brush> {
  const changed = new Map(brushes);
  if (part) changed.set(id, part);
  else changed.delete(id);
  return changed;
}
