/** Tokens of a person: what logs in as them. Everyone has their own; owners of the server see all. */
import { useState } from "preact/hooks";
import { type ApiError, get, send } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Copy } from "../../components/Copy";
import { Confirm, Dialog } from "../../components/Dialog";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Select, TextField } from "../../components/Field";
import { type Column, Table } from "../../components/Table";
import { attempt } from "../../components/Toast";
import { time } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useSession } from "../../lib/session";
import { isExpired, isServerOwner, isSession, type NewToken, type Token, type User } from "./settings";

const DAY_MS = 86_400_000;
const LIFETIMES = [["30", "30 days"], ["90", "90 days"], ["365", "a year"]] as const;

export function TokensTab({ users }: { users: readonly User[] }) {
  const { person } = useSession();
  const { query } = useAddress();
  const seesAll = isServerOwner(users.find((user) => user.name === person.user));
  const name = (seesAll && query.get("person")) || person.user;
  const base = `/v1/users/${encodeURIComponent(name)}/tokens`;
  const { data, error, loading, reload } = useLoad(base, (signal) => get<Page<Token>>(base, signal));
  const [ask, setAsk] = useState<Token | "new" | null>(null);
  const [made, setMade] = useState<NewToken | null>(null);
  const revoke = async (token: Token): Promise<void> => {
    await attempt(send("DELETE", `${base}/${encodeURIComponent(token.name)}`), `${token.name} was revoked`);
    reload();
  };
  return (
    <div class="stack">
      <p class="intro">A token logs its holder in as {name === person.user ? "you" : name}: programs, the command line, and this page in each browser. Revoke what is lost or no longer used.</p>
      <div class="filters-choice">
        {seesAll && <Select label="Person" value={name} options={users.map((user) => [user.name, user.name] as const)} onChange={(chosen) => setQuery({ person: chosen === person.user ? null : chosen }, false)} />}
        <Button kind="primary" onClick={() => setAsk("new")}>Create a token</Button>
      </div>
      {error && <ErrorNote error={error} />}
      {loading && <Loading label="Loading tokens" />}
      {data && !data.value.length && <Empty title={`${name} has no tokens`} command={`yard user token create ${name}`} />}
      {data && data.value.length > 0 && <Table label="Tokens" columns={columnsFor(setAsk)} rows={data.value} keyOf={(token) => token.name} />}
      {ask === "new" && <CreateToken base={base} onClose={() => setAsk(null)} onMade={(token) => { setAsk(null); setMade(token); reload(); }} />}
      {made && <ShowToken token={made} onClose={() => setMade(null)} />}
      {ask && ask !== "new" && (
        <Confirm title={`Revoke ${ask.name}?`} action="Revoke" onClose={() => setAsk(null)} onConfirm={() => void revoke(ask)}>
          <p>{isSession(ask) ? "The browser that it signs in is signed out at once." : "Whatever uses it is refused at once."}</p>
        </Confirm>
      )}
    </div>
  );
}

function columnsFor(onRevoke: (token: Token) => void): Column<Token>[] {
  return [
    { id: "name", head: "Token", width: "grow", cell: (token) => <span class="strong">{token.name}</span> },
    { id: "kind", head: "Kind", cell: (token) => <Badge tone={isSession(token) ? "blue" : "grey"}>{isSession(token) ? "this page, in a browser" : "token"}</Badge> },
    { id: "used", head: "Last used", numeric: true, cell: (token) => token.last_used_at ? <Ago at={token.last_used_at} /> : <span class="dim">never</span> },
    { id: "expires", head: "Valid until", numeric: true, cell: (token) => token.expires_at === null ? "without end"
      : isExpired(token, Date.now()) ? <Badge tone="red">expired</Badge> : <time dateTime={token.expires_at}>{time(token.expires_at)}</time> },
    { id: "created", head: "Created", numeric: true, cell: (token) => <span class="dim"><Ago at={token.created_at} /></span> },
    { id: "actions", head: <span class="visually-hidden">Actions</span>, width: "shrink", cell: (token) => <span class="row-actions"><Button kind="danger" label={`Revoke ${token.name}`} onClick={() => onRevoke(token)}>Revoke</Button></span> },
  ];
}

function CreateToken({ base, onClose, onMade }: { base: string; onClose: () => void; onMade: (token: NewToken) => void }) {
  const [name, setName] = useState("");
  const [days, setDays] = useState<string>("90");
  const [error, setError] = useState<ApiError | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      onMade(await send<NewToken>("POST", base, { name: name.trim(), expires_at: new Date(Date.now() + Number(days) * DAY_MS).toISOString() }));
    } catch (refused) {
      setError(refused as ApiError);
    }
  };
  return (
    <Dialog title="Create a token" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {error && <ErrorNote error={error} />}
          <TextField label="Name" value={name} onInput={setName} required autoFocus placeholder="laptop" hint="Says what uses it." />
          <Select label="Valid for" value={days} options={LIFETIMES} onChange={setDays} hidden={false} />
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!name.trim()}>Create</Button></footer>
      </form>
    </Dialog>
  );
}

function ShowToken({ token, onClose }: { token: NewToken; onClose: () => void }) {
  const login = `yard login ${token.url || location.origin}`;
  return (
    <Dialog title={`Token ${token.name}`} onClose={onClose}>
      <div class="dialog-body">
        <p>It is shown only this once.</p>
        <div class="secret"><code>{token.token}</code><Copy text={token.token} label="Copy the token" /></div>
        <p>{token.user} logs in with it:</p>
        <div class="secret"><code>{login}</code><Copy text={login} label="Copy the command" /></div>
      </div>
      <footer class="dialog-foot"><Button kind="primary" onClick={onClose}>Done</Button></footer>
    </Dialog>
  );
}
