/** Who may do what in the workspace. Owners change roles; owners of the server add and remove people. */
import { useState } from "preact/hooks";
import { type ApiError, api, send } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Confirm, Dialog } from "../../components/Dialog";
import { Ago } from "../../components/Duration";
import { ErrorNote } from "../../components/Empty";
import { SearchField, Select, TextField } from "../../components/Field";
import { type Column, Table } from "../../components/Table";
import { attempt, say } from "../../components/Toast";
import { href } from "../../lib/address";
import { setQuery, useAddress } from "../../lib/router";
import { useSession } from "../../lib/session";
import { EVERYWHERE, isServerOwner, roleIn, ROLES, type User } from "./settings";
import { OwnersOnly } from "./SettingsPage";

const NO_ROLE = "";
const CHOICES = [[NO_ROLE, "no role"], ...ROLES.map((role) => [role, role] as const)] as const;

export function PeopleTab({ users, onChange }: { users: readonly User[]; onChange: () => void }) {
  const { workspace, person } = useSession();
  const { query } = useAddress();
  const text = query.get("text") ?? "";
  const [ask, setAsk] = useState<User | "new" | null>(null);
  const isOwner = person.role === "owner";
  const mayAdd = isServerOwner(users.find((user) => user.name === person.user));
  const rows = users.filter((user) => user.name.toLowerCase().includes(text.toLowerCase()));
  const setRole = async (user: User, role: string): Promise<void> => {
    await attempt(send("PUT", api(workspace, ["people", user.name]), { role: role || null }), role ? `${user.name} is ${role} of ${workspace}` : `${user.name} has no role in ${workspace}`);
    onChange();
  };
  const remove = async (user: User): Promise<void> => {
    await attempt(send("DELETE", `/v1/users/${encodeURIComponent(user.name)}`), `${user.name} was removed`);
    onChange();
  };
  const columns: Column<User>[] = [
    { id: "name", head: "Name", width: "grow", cell: (user) => <><a class="strong" href={href(workspace, "jobs", [], { owner: user.name })}>{user.name}</a>{user.name === person.user && <span class="dim"> you</span>}</> },
    { id: "role", head: `Role in ${workspace}`, cell: (user) => isOwner && user.roles[EVERYWHERE] !== "owner"
      ? <span class="role"><Select label={`Role of ${user.name}`} value={user.roles[workspace] ?? NO_ROLE} options={CHOICES} onChange={(role) => void setRole(user, role)} /></span>
      : roleIn(user, workspace) ?? <span class="dim">no role</span> },
    { id: "other", head: "Elsewhere", cell: (user) => <OtherRoles user={user} here={workspace} /> },
    { id: "created", head: "Since", numeric: true, cell: (user) => <span class="dim"><Ago at={user.created_at} /></span> },
    { id: "actions", head: <span class="visually-hidden">Actions</span>, width: "shrink", cell: (user) => (
      <span class="row-actions">
        {(mayAdd || user.name === person.user) && <Button href={href(workspace, "settings", [], { tab: "tokens", person: user.name === person.user ? null : user.name })}>Tokens</Button>}
        {mayAdd && user.name !== person.user && <Button kind="danger" icon="close" label={`Remove ${user.name}`} onClick={() => setAsk(user)} />}
      </span>
    ) },
  ];
  return (
    <div class="stack">
      {!isOwner && <OwnersOnly what="grant roles" users={users} />}
      <div class="filters-choice">
        <SearchField label="Search people" value={text} onInput={(typed) => setQuery({ text: typed })} />
        {mayAdd && <Button kind="primary" onClick={() => setAsk("new")}>Add a person</Button>}
      </div>
      <Table label="People" columns={columns} rows={rows} keyOf={(user) => user.name} />
      {ask === "new" && <AddPerson onClose={() => setAsk(null)} onDone={onChange} />}
      {ask && ask !== "new" && (
        <Confirm title={`Remove ${ask.name}?`} action="Remove" onClose={() => setAsk(null)} onConfirm={() => void remove(ask)}>
          <p>Their roles and tokens end at once, on the whole server. Their jobs go on, and what they made stays.</p>
        </Confirm>
      )}
    </div>
  );
}

function OtherRoles({ user, here }: { user: User; here: string }) {
  const others = Object.entries(user.roles).filter(([place]) => place !== here);
  if (!others.length) return <span class="dim">–</span>;
  return <span class="roles">{others.map(([place, role]) => place === EVERYWHERE
    ? <Badge key={place} tone="amber">{role} of the server</Badge>
    : <a key={place} class="tag" href={href(place, "settings")}>{role} of {place}</a>)}</span>;
}

function AddPerson({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const { workspace } = useSession();
  const [name, setName] = useState("");
  const [role, setRole] = useState<string>("data scientist");
  const [error, setError] = useState<ApiError | null>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await send("POST", "/v1/users", { name: name.trim(), role, workspace });
      say(`${name.trim()} was added: create a token for them`);
      onClose();
      onDone();
      setQuery({ tab: "tokens", person: name.trim(), text: null }, false);
    } catch (refused) {
      setError(refused as ApiError);
    }
  };
  return (
    <Dialog title="Add a person" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {error && <ErrorNote error={error} />}
          <TextField label="Name" value={name} onInput={setName} required autoFocus hint="They log in with a token that you create next." />
          <Select label={`Role in ${workspace}`} value={role} options={ROLES.map((each) => [each, each] as const)} onChange={setRole} hidden={false} />
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!name.trim()}>Add</Button></footer>
      </form>
    </Dialog>
  );
}
