/** How many nodes a cluster had over time, and how many of them jobs held. */
import { plural, time } from "../../lib/format";
import { busyShare, type History, hours, steps } from "./computes";

const WIDTH = 800;
const HEIGHT = 120;
const REASONS = 5;

export function Occupancy({ history, since_ms, until_ms, most }: { history: History; since_ms: number; until_ms: number; most: number }) {
  const days = history.usage.filter((day) => Date.parse(`${day.day}T23:59:59Z`) >= since_ms);
  const share = busyShare(days);
  const drawn = steps(history.counts, since_ms, until_ms, WIDTH, HEIGHT, most);
  if (!drawn.current) return <p class="dim">No node was up in this period.</p>;
  const latest = [...history.counts].filter((count) => Date.parse(count.at) >= since_ms).sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, REASONS);
  const node_hours = days.reduce((sum, day) => sum + day.node_hours, 0);
  const text = share === null ? "" : `${hours(node_hours)} of nodes, ${Math.round(share * 100)} % of them held by jobs`;
  return (
    <>
      <p class="occupancy-legend">
        <span><span class="legend-color node-key-running" aria-hidden="true" /> held by jobs</span>
        <span><span class="legend-color node-key-current" aria-hidden="true" /> up</span>
        <span class="dim">{text}</span>
      </p>
      <div class="steps">
        <span class="steps-top dim number">{drawn.most}</span>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`Nodes over time: ${text || plural(drawn.most, "node")} at most`}>
          <line x1="0" x2={WIDTH} y1="0.5" y2="0.5" /><line x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
          <path class="steps-current" d={drawn.current} /><path class="steps-running" d={drawn.running} />
        </svg>
        <span class="steps-ends dim"><time>{time(new Date(since_ms).toISOString())}</time><time>now</time></span>
      </div>
      {latest.length > 0 && (
        <details class="failure-text">
          <summary>Latest changes</summary>
          <ul class="changes">{latest.map((count, at) => <li key={at}><time class="dim number" dateTime={count.at}>{time(count.at)}</time><span>{count.reason}</span></li>)}</ul>
        </details>
      )}
    </>
  );
}
