/** Webhooks and e-mail about every job of the workspace that ends. */
import { useState } from "preact/hooks";
import { ApiError, api, get, send } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { TextField } from "../../components/Field";
import { Icon } from "../../components/Icon";
import { type Column, Table } from "../../components/Table";
import { attempt, say } from "../../components/Toast";
import { useLoad } from "../../lib/query";
import { useSession } from "../../lib/session";
import { adding, type End, ENDS, isEmail, type Notifications, type Recipient, recipientsOf, removing } from "./notifications";
import { maySet } from "./settings";

type Changed = Notifications & { notices: string[] };

export function MessagesTab() {
  const { workspace, person } = useSession();
  const url = api(workspace, []);
  const { data, error, reload } = useLoad(url, (signal) => get<Notifications>(url, signal));
  const [isAsked, ask] = useState(false);
  const [notices, setNotices] = useState<string[]>([]);
  if (!data) return error ? <ErrorNote error={error} /> : <Loading label="Loading the recipients" />;
  const rows = recipientsOf(data);
  const may = maySet(person.role);
  const remove = async (place: number): Promise<void> => {
    await attempt(send("PATCH", url, removing(data, place)), `${rows[place]?.label ?? "It"} is told no more`);
    setNotices([]);
    reload();
  };
  return (
    <div class="stack">
      <p class="intro">These recipients are told when any job of {workspace} ends, as well as those that a job names itself. Nobody is told of the same end twice.</p>
      {may && <div class="filters-choice"><Button kind="primary" onClick={() => ask(true)}>Add a recipient</Button></div>}
      {notices.map((notice) => <div key={notice} class="note note-amber"><Icon name="info" /><div><p>{notice}</p></div></div>)}
      {!rows.length && <Empty title="Nobody is told" command="yard workspace update --notify name@example.org">{may ? "Add an e-mail address or a webhook." : "A contributor or an owner can add recipients."}</Empty>}
      {rows.length > 0 && <Table label="Recipients" columns={columnsFor(rows, may, (place) => void remove(place))} rows={rows} keyOf={(row) => `${row.kind} ${row.label} ${rows.indexOf(row)}`} />}
      {isAsked && <AddRecipient url={url} told={data} onClose={() => ask(false)} onDone={(changed) => { setNotices(changed.notices); reload(); }} />}
    </div>
  );
}

function columnsFor(rows: readonly Recipient[], may: boolean, onRemove: (place: number) => void): Column<Recipient>[] {
  return [
    { id: "recipient", head: "Recipient", width: "grow", cell: (row) => <><span class={row.isSecret ? "mono" : "strong wraps"}>{row.label}</span>{row.isSecret && <span class="dim"> secret URL</span>}</> },
    { id: "kind", head: "By", cell: (row) => <>{row.kind === "email" ? "E-mail" : "Webhook"}{row.isSigned && <> <Badge tone="grey">Signed</Badge></>}</> },
    { id: "on", head: "When a job has", cell: (row) => (row.on.length === ENDS.length ? "ended" : row.on.join(" or ")) },
    ...(may ? [{ id: "actions", head: <span class="visually-hidden">Actions</span>, width: "shrink" as const, cell: (row: Recipient) => <span class="row-actions"><Button kind="danger" icon="close" label={`Remove ${row.label}`} onClick={() => onRemove(rows.indexOf(row))} /></span> }] : []),
  ];
}

function AddRecipient({ url, told, onClose, onDone }: { url: string; told: Notifications; onClose: () => void; onDone: (changed: Changed) => void }) {
  const [address, setAddress] = useState("");
  const [on, setOn] = useState<End[]>(["failed"]);
  const [secret, setSecret] = useState("");
  const [isSecret, setIsSecret] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const isMail = isEmail(address);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      const changed = await send<Changed>("PATCH", url, adding(told, { address: address.trim(), on, secret, isSecret }));
      say("The recipient was added");
      onDone(changed);
      onClose();
    } catch (refused) {
      if (!(refused instanceof ApiError)) throw refused;
      setError(refused);
    }
  };
  return (
    <Dialog title="Add a recipient" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {error && <ErrorNote error={error} />}
          <TextField label="Address" value={address} onInput={setAddress} required autoFocus mono placeholder="name@example.org or https://host/path" hint="An e-mail address, or the URL of a webhook, which gets a POST request with JSON." />
          <fieldset class="checks">
            <legend class="field-label">When a job has</legend>
            {ENDS.map(([end]) => <label key={end} class="check"><input type="checkbox" checked={on.includes(end)} onChange={(event) => setOn(event.currentTarget.checked ? [...on, end] : on.filter((each) => each !== end))} /> {end}</label>)}
            {isMail && <span class="field-hint">Holds for all e-mail of the workspace.</span>}
          </fieldset>
          {!isMail && <TextField label="Secret that signs its messages" type="password" value={secret} onInput={setSecret} hint="May be left out. It is shown to nobody." />}
          {!isMail && <label class="check"><input type="checkbox" checked={isSecret} onChange={(event) => setIsSecret(event.currentTarget.checked)} /> The URL is itself a secret, as those of chats are</label>}
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!address.trim() || !on.length}>Add</Button></footer>
      </form>
    </Dialog>
  );
}
