/** What the job runs in, as it was pinned and built: packages, files for use elsewhere, the build. */
import { api, get } from "../../api/client";
import { ENDED, type Job } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Choice } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Facts, Panel } from "../../components/Panel";
import { bytes } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useWorkspace } from "../../lib/session";
import { BuildLogOf } from "../environments/BuildTab";
import { buildTone, type Exported } from "../environments/environments";
import { GeneratedFiles } from "../environments/GeneratedTab";
import { Packages } from "../environments/Packages";
import { imageOf, type JobEnvironment, kindOf } from "./environment";
import { EnvironmentName } from "./Overview";

const PARTS = [["packages", "Packages"], ["files", "Generated files"], ["build", "Build"], ["variables", "Variables"]] as const;
type PartId = (typeof PARTS)[number][0];

export function EnvironmentTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const url = api(workspace, ["jobs", job.name, "environment"]);
  const { data, error, reload } = useLoad(`${url}?${job.environment_hash} ${ENDED.has(job.status)}`, (signal) => get<JobEnvironment>(url, signal));
  if (error?.status === 404) return <Empty title="No environment">{job.name} was run outside of any job: what it ran in is not known.</Empty>;
  if (!data) return error ? <ErrorNote error={error} /> : <Loading label="Loading the environment" />;
  const chosen = PARTS.find(([id]) => id === query.get("part"))?.[0] ?? "packages";
  return (
    <div class="overview">
      <div class="overview-main">
        <div><Choice label="Parts of the environment" value={chosen} options={PARTS} onChange={(part) => setQuery({ part: part === "packages" ? null : part, filter: null, format: null }, false)} /></div>
        {data.error && chosen !== "build" && <ErrorNote error={{ message: data.error, hint: "The build's log says more." }} />}
        <Part part={chosen} job={job} environment={data} onBuilt={reload} />
      </div>
      <div class="overview-side"><About job={job} environment={data} /></div>
    </div>
  );
}

function Part({ part, job, environment, onBuilt }: { part: PartId; job: Job; environment: JobEnvironment; onBuilt: () => void }) {
  const workspace = useWorkspace();
  const name = environment.ref || `the environment of ${job.name}`;
  switch (part) {
    case "files": return (
      <GeneratedFiles of={`${job.name} ${environment.hash} ${environment.build}`} read={(format) => get<Exported>(api(workspace, ["jobs", job.name, "environment", "export"], { format }))} />
    );
    case "build": return (
      <BuildLogOf key={environment.hash} environment={environment} name={name} onBuilt={onBuilt}>
        <Empty title="Not built yet">The build begins before the job gets a node.</Empty>
      </BuildLogOf>
    );
    case "variables": return <Variables job={job} environment={environment} />;
    default: return <Packages environment={environment} image={imageOf(environment)} />;
  }
}

function About({ job, environment }: { job: Job; environment: JobEnvironment }) {
  const { spec } = environment;
  const definition = job.spec.environment;
  return (
    <>
      <Panel title="Environment" aside={<Badge tone={buildTone(environment.build)}>{environment.build}</Badge>}>
        <Facts rows={[
          ["Environment", <EnvironmentName job={job} />],
          ["Kind", kindOf(environment)],
          ["Image", imageOf(environment) && <span class="mono">{imageOf(environment)}</span>],
          ["Python", spec.python],
          ["Platform", spec.platform],
          ["Channels", spec.channels.join(", ")],
          ["Size", environment.size_bytes ? bytes(environment.size_bytes) : ""],
          ["Content", <span class="mono">{environment.hash}</span>],
        ]} />
      </Panel>
      {typeof definition === "object" && definition !== null && <Panel title="In the job file"><pre class="code-block" tabIndex={0}>{JSON.stringify(definition, null, 2)}</pre></Panel>}
      {environment.notices.length > 0 && <Panel title="Notices"><ul class="notices">{environment.notices.map((notice) => <li key={notice}><Icon name="info" size={14} /><span>{notice}</span></li>)}</ul></Panel>}
    </>
  );
}

/** Those of the job, then those that the environment sets where the job does not. */
function Variables({ job, environment }: { job: Job; environment: JobEnvironment }) {
  const own = Object.entries(job.spec.environment_variables ?? {});
  const others = environment.spec.variables.filter(([name]) => !own.some(([key]) => key === name));
  if (!own.length && !others.length) return <Empty title="No variables" command="environment_variables: {EPOCHS: '10'}">A job file sets them; torchyard adds those of distributed training.</Empty>;
  return (
    <>
      {own.length > 0 && <Panel title="Of the job"><Facts rows={own.map(([key, value]) => [key, <span class="mono">{String(value)}</span>])} /></Panel>}
      {others.length > 0 && <Panel title="Of the environment"><Facts rows={others.map(([key, value]) => [key, <span class="mono">{value}</span>])} /></Panel>}
    </>
  );
}
