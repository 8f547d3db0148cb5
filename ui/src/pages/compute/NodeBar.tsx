/** The nodes of a cluster, each in the colour of its state; what could still be started is empty. */
import { type Compute, occupancyText, stateCounts, stateTone } from "./computes";

const CELL = 10;
const GAP = 2;
const MOST_CELLS = 16;
const WIDTH = MOST_CELLS * (CELL + GAP) - GAP;

export function NodeBar({ compute }: { compute: Compute }) {
  const states = stateCounts(compute).flatMap(([state, many]) => Array.from({ length: Math.min(many, 10_000) }, () => state));
  const most = Math.max(compute.max_instances, states.length, 1);
  const isCells = most <= MOST_CELLS;
  const unit = isCells ? CELL + GAP : WIDTH / most;
  const width = isCells ? most * (CELL + GAP) - GAP : WIDTH;
  return (
    <svg class="node-bar" width={width} height={14} viewBox={`0 0 ${width} 14`} role="img" aria-label={occupancyText(compute)}>
      {isCells
        ? Array.from({ length: most }, (_, at) => <rect key={at} class={`node-cell node-${states[at] ? stateTone(states[at]) : "none"}`} x={at * unit + 0.5} y={0.5} width={CELL - 1} height={13} rx={2} />)
        : <>
            <rect class="node-cell node-none" x={0.5} y={0.5} width={WIDTH - 1} height={13} rx={2} />
            {groups(stateCounts(compute)).map(({ state, start, many }) => <rect key={state} class={`node-cell node-${stateTone(state)}`} x={start * unit} y={0.5} width={Math.max(1, many * unit)} height={13} />)}
          </>}
    </svg>
  );
}

function groups(counts: readonly [string, number][]): { state: string; start: number; many: number }[] {
  let start = 0;
  return counts.map(([state, many]) => {
    const group = { state, start, many };
    start += many;
    return group;
  });
}
