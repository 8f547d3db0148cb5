/** Settings of the workspace: people, tokens, quotas, messages, audit; what a role doesn't allow is said so. */
import { get } from "../../api/client";
import type { Page } from "../../api/model";
import { ErrorNote, Loading } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { PageHead } from "../../components/Panel";
import { TabPanel, Tabs } from "../../components/Tabs";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useSession } from "../../lib/session";
import { AuditTab } from "./AuditTab";
import { MessagesTab } from "./MessagesTab";
import { PeopleTab } from "./PeopleTab";
import { QuotasTab } from "./QuotasTab";
import { owners, type User } from "./settings";
import { TokensTab } from "./TokensTab";

const TABS = [["people", "People"], ["tokens", "Tokens"], ["quotas", "Quotas"], ["messages", "Messages"], ["audit", "Audit"]] as const;
type TabId = (typeof TABS)[number][0];

export default function SettingsPage(_: { names: string[] }) {
  const { workspace } = useSession();
  const { query } = useAddress();
  const chosen: TabId = TABS.find(([id]) => id === query.get("tab"))?.[0] ?? "people";
  const { data, error, reload } = useLoad("/v1/users", (signal) => get<Page<User>>("/v1/users", signal));
  return (
    <>
      <PageHead title="Settings" above={workspace} />
      <Tabs label="Parts of the settings" chosen={chosen} tabs={TABS.map(([id, label]) => ({ id, label }))} onChoose={(tab) => setQuery({ tab: tab === "people" ? null : tab, person: null, user: null, limit: null }, false)} />
      <TabPanel id={chosen}>
        {error && <ErrorNote error={error} />}
        {!data && !error && <Loading label="Loading the people" />}
        {data && <Part tab={chosen} users={data.value} onChange={reload} />}
      </TabPanel>
    </>
  );
}

function Part({ tab, users, onChange }: { tab: TabId; users: readonly User[]; onChange: () => void }) {
  switch (tab) {
    case "tokens": return <TokensTab users={users} />;
    case "quotas": return <QuotasTab users={users} />;
    case "messages": return <MessagesTab />;
    case "audit": return <AuditTab users={users} />;
    default: return <PeopleTab users={users} onChange={onChange} />;
  }
}

/** Says what the person's role doesn't allow here, and whom to ask. */
export function OwnersOnly({ what, users }: { what: string; users: readonly User[] }) {
  const { workspace, person } = useSession();
  const names = owners(users, workspace);
  return (
    <div class="note note-blue">
      <Icon name="info" />
      <div>
        <p>Only owners can {what}; you are {person.role ? `a ${person.role}` : "without a role here"}.</p>
        <p class="note-hint">{names.length ? `Ask ${names.join(", ")}.` : "Ask who administers the server."}</p>
      </div>
    </div>
  );
}
