/** How much of the workspace people may use, how much they do, and who asked for more. */
import { useState } from "preact/hooks";
import { type ApiError, api, get, send } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Select, TextField } from "../../components/Field";
import { Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { attempt, say } from "../../components/Toast";
import { useLoad, useThrottled } from "../../lib/query";
import { mayWrite, useEvent, useSession } from "../../lib/session";
import { amount, type Limit, limitOf, parseAmount, quotaName, type QuotaRequest, type User } from "./settings";

interface Limits {
  value: Limit[];
  /** What each limit counts, in words. */
  names: Record<string, string>;
}

const TONES: Record<string, Tone> = { asked: "amber", approved: "green", denied: "red" };

export function QuotasTab({ users }: { users: readonly User[] }) {
  const { workspace, person } = useSession();
  const url = api(workspace, ["quotas"]);
  const { data, error, loading, reload } = useLoad(url, (signal) => get<Limits>(url, signal));
  const [ask, setAsk] = useState<Limit | "set" | "request" | null>(null);
  const isOwner = person.role === "owner";
  const again = useThrottled(reload, 3000);
  useEvent("compute", again);
  const remove = async (limit: Limit): Promise<void> => {
    await attempt(send("PUT", url, { user: limit.user, limits: { [limit.name]: null } }), "The quota was removed");
    reload();
  };
  return (
    <div class="stack">
      <div class="filters-choice">
        {isOwner && <Button kind="primary" onClick={() => setAsk("set")}>Set a quota</Button>}
        {!isOwner && mayWrite(person) && !!data?.value.length && <Button kind="primary" onClick={() => setAsk("request")}>Request more</Button>}
      </div>
      {error && <ErrorNote error={error} />}
      {loading && <Loading label="Loading quotas" />}
      {data && !data.value.length && <Empty title="No quotas" command="yard quota set nodes=8">There is no limit unless an owner sets one.</Empty>}
      {data && data.value.length > 0 && <Table label="Quotas" columns={columnsFor(data.names, isOwner, setAsk, (limit) => void remove(limit))} rows={data.value} keyOf={(limit) => `${limit.user}/${limit.name}`} />}
      <Requests isOwner={isOwner} onAnswered={reload} />
      {data && ask === "request" && <RequestMore names={data.names} onClose={() => setAsk(null)} />}
      {data && ask && ask !== "request" && <SetQuota names={data.names} users={users} limit={ask === "set" ? null : ask} onClose={() => setAsk(null)} onDone={reload} />}
    </div>
  );
}

function columnsFor(names: Limits["names"], isOwner: boolean, onChange: (limit: Limit) => void, onRemove: (limit: Limit) => void): Column<Limit>[] {
  return [
    { id: "name", head: "Limit", cell: (limit) => <span class="quota-name"><span class="strong">{quotaName(limit.name)}</span><span class="job-why wraps dim">{names[limit.name]}</span></span> },
    { id: "user", head: "For", cell: (limit) => limitOf(limit.user) },
    { id: "used", head: "In use", width: "grow", cell: (limit) => <Use limit={limit} /> },
    { id: "most", head: "At most", numeric: true, cell: (limit) => amount(limit.name, limit.most) },
    { id: "set", head: "Set", numeric: true, cell: (limit) => <span class="dim"><Ago at={limit.set_at} /> by {limit.set_by}</span> },
    ...(isOwner ? [{ id: "actions", head: <span class="visually-hidden">Actions</span>, width: "shrink" as const, cell: (limit: Limit) => (
      <span class="row-actions">
        <Button onClick={() => onChange(limit)}>Change</Button>
        <Button kind="danger" icon="close" label={`Remove ${limit.name} for ${limitOf(limit.user)}`} onClick={() => onRemove(limit)} />
      </span>
    ) }] : []),
  ];
}

function Use({ limit }: { limit: Limit }) {
  if (limit.used === null) return <span class="dim">–</span>;
  const share = limit.most > 0 ? Math.min(1, limit.used / limit.most) : 1;
  return (
    <span class="use">
      <svg class={share >= 1 ? "share share-full" : "share"} width="100%" height="8" aria-hidden="true"><rect class="share-all" width="100%" height="8" rx="2" /><rect width={`${100 * share}%`} height="8" rx="2" /></svg>
      <span class="number">{amount(limit.name, limit.used)}{limit.user === "*" && <span class="dim"> by you</span>}</span>
    </span>
  );
}

function Requests({ isOwner, onAnswered }: { isOwner: boolean; onAnswered: () => void }) {
  const { workspace } = useSession();
  const url = api(workspace, ["quota-requests"]);
  const { data, error, reload } = useLoad(url, (signal) => get<Page<QuotaRequest>>(url, signal));
  const answer = async (request: QuotaRequest, verb: "approve" | "deny"): Promise<void> => {
    await attempt(send("POST", api(workspace, ["quota-requests", request.id, verb]), { answer: "" }), verb === "approve" ? `${request.user} has more ${request.name} now` : "The request was denied");
    reload();
    onAnswered();
  };
  const columns: Column<QuotaRequest>[] = [
    { id: "user", head: "Who", cell: (row) => <span class="strong">{row.user}</span> },
    { id: "what", head: "Wants", cell: (row) => `${quotaName(row.name)} ${amount(row.name, row.most)}` },
    { id: "reason", head: "Reason", width: "grow", cell: (row) => <span class="about-text" title={row.reason}>{row.reason}</span> },
    { id: "asked", head: "Asked", numeric: true, cell: (row) => <span class="dim"><Ago at={row.asked_at} /></span> },
    { id: "state", head: "State", cell: (row) => <><Badge tone={TONES[row.state] ?? "grey"}>{row.state}</Badge>{row.answered_by && <span class="dim"> by {row.answered_by}</span>}</> },
    ...(isOwner ? [{ id: "actions", head: <span class="visually-hidden">Actions</span>, width: "shrink" as const, cell: (row: QuotaRequest) => row.state === "asked" && (
      <span class="row-actions"><Button onClick={() => void answer(row, "approve")}>Approve</Button><Button kind="danger" onClick={() => void answer(row, "deny")}>Deny</Button></span>
    ) }] : []),
  ];
  return (
    <Panel title="Requests" flush={!!data?.value.length}>
      {error && <ErrorNote error={error} />}
      {data && (data.value.length > 0
        ? <Table label="Quota requests" columns={columns} rows={data.value} keyOf={(row) => row.id} />
        : <p class="dim">Nobody has asked for more.</p>)}
    </Panel>
  );
}

const AMOUNT_HINT = "A number; times as 12h, sizes as 50GB.";

function SetQuota({ names, users, limit, onClose, onDone }: { names: Limits["names"]; users: readonly User[]; limit: Limit | null; onClose: () => void; onDone: () => void }) {
  const { workspace } = useSession();
  const [name, setName] = useState(limit?.name ?? "nodes");
  const [user, setUser] = useState(limit?.user ?? "");
  const [text, setText] = useState(limit ? String(limit.most) : "");
  const [error, setError] = useState<Pick<ApiError, "message" | "hint"> | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const most = parseAmount(name, text);
    if (most === null) return setError({ message: `\`${text}\` is not an amount of ${names[name] ?? name}`, hint: AMOUNT_HINT });
    try {
      await send("PUT", api(workspace, ["quotas"]), { user, limits: { [name]: most } });
      say("The quota is set");
      onClose();
      onDone();
    } catch (refused) {
      setError(refused as ApiError);
    }
  };
  return (
    <Dialog title={limit ? "Change a quota" : "Set a quota"} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {error && <ErrorNote error={error} />}
          {!limit && <Select label="Limit" value={name} options={Object.entries(names)} onChange={setName} hidden={false} />}
          {!limit && <Select label="For" value={user} options={[["", "all together"], ["*", "each person"], ...users.map((each) => [each.name, each.name] as const)]} onChange={setUser} hidden={false} />}
          {limit && <p>{names[limit.name] ?? limit.name}, {limitOf(limit.user)}</p>}
          <TextField label="At most" value={text} onInput={setText} required autoFocus hint={AMOUNT_HINT} />
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!text.trim()}>Set</Button></footer>
      </form>
    </Dialog>
  );
}

function RequestMore({ names, onClose }: { names: Limits["names"]; onClose: () => void }) {
  const { workspace } = useSession();
  const [name, setName] = useState("nodes");
  const [text, setText] = useState("");
  const [reason, setReason] = useState("");
  const [error, setError] = useState<Pick<ApiError, "message" | "hint"> | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const most = parseAmount(name, text);
    if (most === null) return setError({ message: `\`${text}\` is not an amount of ${names[name] ?? name}`, hint: AMOUNT_HINT });
    try {
      const { owners } = await send<{ owners: string[] }>("POST", api(workspace, ["quota-requests"]), { name, most, reason });
      say(`Asked: ${owners.join(", ") || "an owner"} will answer`);
      onClose();
    } catch (refused) {
      setError(refused as ApiError);
    }
  };
  return (
    <Dialog title="Request more" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {error && <ErrorNote error={error} />}
          <Select label="Limit" value={name} options={Object.entries(names)} onChange={setName} hidden={false} />
          <TextField label="At most" value={text} onInput={setText} required autoFocus hint={AMOUNT_HINT} />
          <TextField label="Reason" value={reason} onInput={setReason} required />
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!text.trim() || !reason.trim()}>Request</Button></footer>
      </form>
    </Dialog>
  );
}
