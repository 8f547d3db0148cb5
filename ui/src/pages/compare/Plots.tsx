/** Jobs as lines over several axes and as points over two; what is shown is in the address. */
import { useMemo, useState } from "preact/hooks";
import { Button } from "../../components/Button";
import { Select } from "../../components/Field";
import { Menu } from "../../components/Menu";
import { Panel } from "../../components/Panel";
import { type Sort, Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { plural } from "../../lib/format";
import { setQuery, useAddress } from "../../lib/router";
import { useWorkspace } from "../../lib/session";
import { MOST_JOBS } from "./differences";
import { ParallelPlot } from "./ParallelPlot";
import { type Axis, colorFor, type Mark, sayCell } from "./plotting";
import { type Brush, type Compared, type Dimension, dimensionsOf, isWithin, readBrushes, scaleOf, usualAxes, writeBrushes } from "./scales";
import { ScatterPlot } from "./ScatterPlot";

const GROUPS = [["inputs", "Inputs"], ["params", "Parameters"], ["metrics", "Metrics"]] as const;
const MOST_AXES = 12;
const MOST_LISTED = 200;

/** Nothing when there are less than two jobs, or less than two values to show.
 *
 * `listed`: the jobs that are within the chosen parts of axes stand below, as a table.
 */
export function Plots({ jobs, listed }: { jobs: readonly Compared[]; listed?: boolean }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const [active, setActive] = useState("");
  const dimensions = useMemo(() => dimensionsOf(jobs), [jobs]);
  if (jobs.length < 2 || dimensions.length < 2) return null;
  const known = new Map(dimensions.map((each) => [each.id, each]));
  const usual = usualAxes(dimensions);
  const asked = query.getAll("axis").filter((id) => known.has(id)).slice(0, MOST_AXES);
  const ids = asked.length ? asked : usual.length > 1 ? usual : dimensions.slice(0, 2).map((each) => each.id);
  const axisOf = (id: string): Axis => {
    const dimension = known.get(id) as Dimension;
    return { dimension, scale: scaleOf(dimension.values) };
  };
  const axes = ids.map(axisOf);
  const pick = (name: string, fallback: string): string => (known.has(query.get(name) ?? "") ? (query.get(name) as string) : fallback);
  const [x, y] = [pick("x", ids[0] ?? ""), pick("y", ids.at(-1) ?? "")].map(axisOf) as [Axis, Axis];
  const last = axes.at(-1);
  const marks: Mark[] = jobs.map((job, index) => ({
    job, index, label: job.display_name || job.name, href: jobHref(workspace, job.name),
    color: colorFor(index, jobs.length, last?.dimension.values[index], last?.scale),
  }));
  const brushes = readBrushes(query.getAll("part"));
  const options = dimensions.map((each) => [each.id, each.name] as const);
  return (
    <div class="plots">
      <Panel title="Parallel coordinates" aside={<>
        {brushes.size > 0 && <Button icon="close" onClick={() => setQuery({ part: [] }, false)}>All jobs</Button>}
        <AxesChoice dimensions={dimensions} chosen={ids} />
      </>}>
        <ParallelPlot axes={axes} marks={marks} active={active} onActive={setActive} brushes={brushes} onBrush={(changed) => setQuery({ part: writeBrushes(changed) })} />
      </Panel>
      <Panel title="Scatter" aside={<>
        <Select label="Vertical axis" value={y.dimension.id} options={options} onChange={(id) => setQuery({ y: id })} />
        <span>against</span>
        <Select label="Horizontal axis" value={x.dimension.id} options={options} onChange={(id) => setQuery({ x: id })} />
      </>}>
        <ScatterPlot x={x} y={y} marks={marks} active={active} onActive={setActive} />
      </Panel>
      {listed && <Within marks={marks} axes={axes} brushes={brushes} />}
    </div>
  );
}

function Within({ marks, axes, brushes }: { marks: readonly Mark[]; axes: readonly Axis[]; brushes: ReadonlyMap<string, Brush> }) {
  const workspace = useWorkspace();
  const [sort, setSort] = useState<Sort | null>(null);
  const chosen = new Map([...brushes].filter(([id]) => axes.some((axis) => axis.dimension.id === id)));
  const placeOf = (mark: Mark, id: string): number | null => {
    const axis = axes.find((each) => each.dimension.id === id);
    return axis?.scale.place(axis.dimension.values[mark.index] ?? null) ?? null;
  };
  const rows = marks.filter((mark) => isWithin((id) => placeOf(mark, id), chosen));
  if (sort) {
    // A job without a value comes last either way.
    const sign = sort.descending ? -1 : 1;
    const key = (mark: Mark): number => placeOf(mark, sort.by) ?? sign * 2;
    rows.sort((a, b) => sign * (key(a) - key(b)));
  }
  const compared = rows.slice(0, MOST_JOBS).map((mark) => mark.job.name);
  return (
    <Panel flush title={chosen.size ? `${rows.length} of ${marks.length} jobs` : plural(marks.length, "job")} aside={rows.length > 1 && <Button icon="compare" href={href(workspace, "compare", [], { job: compared })}>{rows.length > MOST_JOBS ? `Compare the first ${MOST_JOBS}` : "Compare these"}</Button>}>
      <Table<Mark>
        label="Jobs" rows={rows.slice(0, MOST_LISTED)} keyOf={(mark) => mark.job.name} sort={sort} onSort={setSort}
        columns={[
          { id: "name", head: "Name", width: "grow", cell: (mark) => <a class="job-link" href={mark.href}>{mark.label}</a> },
          ...axes.map(({ dimension }) => ({ id: dimension.id, head: <span class="clip">{dimension.name}</span>, title: dimension.id, numeric: true, sortable: true, cell: (mark: Mark) => <span class="clip">{sayCell(dimension.values[mark.index])}</span> })),
        ]}
      />
    </Panel>
  );
}

function AxesChoice({ dimensions, chosen }: { dimensions: readonly Dimension[]; chosen: readonly string[] }) {
  const [text, setText] = useState("");
  const toggle = (id: string): void => setQuery({ axis: chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id] });
  const fitting = dimensions.filter((each) => each.name.toLowerCase().includes(text.toLowerCase()));
  return (
    <Menu icon="columns" text="Axes" label="Choose axes">
      {() => (
        <>
          <input class="input" type="search" aria-label="Search axes" placeholder="Search axes" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          {GROUPS.map(([group, title]) => {
            const members = fitting.filter((each) => each.group === group).slice(0, 200);
            if (!members.length) return null;
            return (
              <div key={group}>
                <p class="menu-head">{title}</p>
                {members.map((each) => <label key={each.id} class="menu-item"><input type="checkbox" checked={chosen.includes(each.id)} disabled={chosen.includes(each.id) ? chosen.length <= 2 : chosen.length >= MOST_AXES} onChange={() => toggle(each.id)} />{each.name}</label>)}
              </div>
            );
          })}
        </>
      )}
    </Menu>
  );
}
