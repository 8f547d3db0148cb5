/** One value of each job against another. */
import { cut } from "../../lib/format";
import { type Axis, type Mark, MarkLink, PlotFoot, sayMark, useWidth } from "./plotting";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM, INSET] = [320, 68, 20, 12, 46, 14];

export function ScatterPlot({ x, y, marks, active, onActive }: { x: Axis; y: Axis; marks: readonly Mark[]; active: string; onActive: (name: string) => void }) {
  const [box, width] = useWidth();
  const toX = (place: number): number => LEFT + INSET + place * (width - LEFT - RIGHT - 2 * INSET);
  const toY = (place: number): number => HEIGHT - BOTTOM - INSET - place * (HEIGHT - TOP - BOTTOM - 2 * INSET);
  const dimensions = [x.dimension, y.dimension];
  const points = marks.flatMap((mark) => {
    const [atX, atY] = [x, y].map((axis) => axis.scale.place(axis.dimension.values[mark.index] ?? null));
    return atX == null || atY == null ? [] : [{ mark, x: toX(atX), y: toY(atY) }];
  });
  const isLeftOut = marks.length - points.length;
  return (
    <>
      <div ref={box}>
        <svg class={`plot${active ? " has-active" : ""}`} width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} role="group" aria-label={`${y.dimension.name} against ${x.dimension.name} of ${points.length} jobs`}>
          <g class="plot-axis">
            {y.scale.ticks.map((tick) => <g key={tick.at}><line class="plot-grid" x1={LEFT} x2={width - RIGHT} y1={toY(tick.at)} y2={toY(tick.at)} /><text class="plot-tick" x={LEFT - 8} y={toY(tick.at) + 4} text-anchor="end">{cut(tick.label, LEFT - 12)}</text></g>)}
            {x.scale.ticks.map((tick) => <g key={tick.at}><line class="plot-grid" x1={toX(tick.at)} x2={toX(tick.at)} y1={TOP} y2={HEIGHT - BOTTOM} /><text class="plot-tick" x={toX(tick.at)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">{cut(tick.label, Math.min(width / (x.scale.ticks.length + 1), 2 * (width - toX(tick.at))))}</text></g>)}
            <text class="plot-name" x={LEFT + (width - LEFT - RIGHT) / 2} y={HEIGHT - 8} text-anchor="middle">{cut(sayAxis(x), width - LEFT - RIGHT)}</text>
            <text class="plot-name" transform={`translate(13 ${TOP + (HEIGHT - TOP - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">{cut(sayAxis(y), HEIGHT - TOP - BOTTOM)}</text>
          </g>
          {points.map((point) => (
            <MarkLink key={point.mark.job.name} mark={point.mark} many={marks.length} say={sayMark(point.mark, dimensions)} onActive={onActive}>
              <circle class="plot-hit-point" cx={point.x} cy={point.y} r={12} />
              <circle class={`plot-point${active === point.mark.job.name ? " is-active" : ""}`} cx={point.x} cy={point.y} r={marks.length > 60 ? 4 : 5.5} style={{ fill: point.mark.color }} />
            </MarkLink>
          ))}
        </svg>
      </div>
      <PlotFoot mark={marks.find((mark) => mark.job.name === active)} dimensions={dimensions} hint={isLeftOut ? `${isLeftOut} of ${marks.length} jobs lack one of the two.` : "Each point is a job."} />
    </>
  );
}

function sayAxis(axis: Axis): string {
  return axis.scale.kind === "log" ? `${axis.dimension.name} (log)` : axis.dimension.name;
}
