/** Who did what here, when and from where: changes, and requests that were refused. */
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Select } from "../../components/Field";
import { type Column, Table } from "../../components/Table";
import { jobHref } from "../../lib/address";
import { time } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useSession } from "../../lib/session";
import { aboutText, type AuditLine, type User } from "./settings";
import { OwnersOnly } from "./SettingsPage";

const PAGE = 100;
const MOST = 10_000;
const TONES: Record<string, Tone> = { done: "green", refused: "red", failed: "amber" };

export function AuditTab({ users }: { users: readonly User[] }) {
  const { workspace, person } = useSession();
  const { query } = useAddress();
  const user = query.get("user") ?? "";
  const asked = Number(query.get("limit"));
  const limit = Number.isInteger(asked) && asked > PAGE ? Math.min(asked, MOST) : PAGE;
  const isOwner = person.role === "owner";
  const url = api(workspace, ["audit"], { user, limit });
  const { data, error, loading, reload } = useLoad(isOwner ? url : null, (signal) => get<Page<AuditLine>>(url, signal));
  if (!isOwner) return <OwnersOnly what="read the audit" users={users} />;
  const names = users.map((each) => each.name);
  if (user && !names.includes(user)) names.unshift(user);
  return (
    <div class="stack">
      <div class="filters-choice">
        <Select label="Person" value={user} options={[["", "Anyone"], ...names.map((name) => [name, name] as const)]} onChange={(chosen) => setQuery({ user: chosen }, false)} />
        <Button icon="retry" onClick={reload}>Read again</Button>
      </div>
      {error && <ErrorNote error={error} />}
      {loading && <Loading label="Loading the audit" />}
      {data && !data.value.length && <Empty title="No changes yet" command="yard audit -w WORKSPACE">Each change, and each request that was refused, gets a line here.</Empty>}
      {data && data.value.length > 0 && <Table label="Audit" columns={columnsFor(workspace)} rows={data.value} keyOf={(line) => `${line.at} ${line.method} ${line.path}`} />}
      {data && data.value.length >= limit && limit < MOST && <p class="list-more"><Button onClick={() => setQuery({ limit: limit < 1000 ? limit + 200 : MOST })}>Show more</Button></p>}
    </div>
  );
}

function columnsFor(workspace: string): Column<AuditLine>[] {
  return [
    { id: "at", head: "When", cell: (line) => <time class="number" dateTime={line.at}>{time(line.at)}</time> },
    { id: "user", head: "Who", cell: (line) => (
      <>
        {line.user ? <a class="strong" href={`?${new URLSearchParams({ tab: "audit", user: line.user })}`}>{line.user}</a> : <span class="dim">nobody</span>}
        {line.token && <span class="dim"> by {line.token}</span>}
        {line.job && <> in <a href={jobHref(workspace, line.job)}>{line.job}</a></>}
      </>
    ) },
    { id: "outcome", head: "Outcome", cell: (line) => <Badge tone={TONES[line.outcome] ?? "grey"} title={String(line.status)}>{line.outcome}</Badge> },
    { id: "what", head: "Request", cell: (line) => <span class="about-text mono" title={`${line.method} ${line.path}`}>{line.method} {line.path.replace(`/v1/workspaces/${encodeURIComponent(workspace)}/`, "")}</span> },
    { id: "about", head: "About", width: "grow", cell: (line) => <About line={line} workspace={workspace} /> },
    { id: "from", head: "From", cell: (line) => <span class="dim mono">{line.from}</span> },
  ];
}

/** A job that it names is a link. */
function About({ line, workspace }: { line: AuditLine; workspace: string }) {
  const { job, ...others } = line.about ?? {};
  const text = aboutText(others);
  return (
    <>
      {typeof job === "string" && job && <>job <a href={jobHref(workspace, job)}>{job}</a> </>}
      <span class="about-text" title={text}>{text}</span>
    </>
  );
}
