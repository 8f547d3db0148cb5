/** Tags of a version, to add and to take away. */
import { useState } from "preact/hooks";
import { api, send } from "../../api/client";
import { Button } from "../../components/Button";
import { Icon } from "../../components/Icon";
import { Panel } from "../../components/Panel";
import { attempt } from "../../components/Toast";
import { href } from "../../lib/address";
import { mayWrite, useSession } from "../../lib/session";
import type { Asset, AssetKind } from "./types";

export function AssetTags({ kind, asset, onChange }: { kind: AssetKind; asset: Asset; onChange: () => void }) {
  const { workspace, person } = useSession();
  const [text, setText] = useState("");
  const change = async (tags: Record<string, string | null>): Promise<void> => {
    await attempt(send("PATCH", api(workspace, [kind, asset.name, "versions", String(asset.version)]), { tags }));
    onChange();
  };
  const add = (event: Event): void => {
    event.preventDefault();
    const [key = "", ...rest] = text.split("=");
    if (!key.trim()) return;
    setText("");
    void change({ [key.trim()]: rest.join("=").trim() });
  };
  const tags = Object.entries(asset.tags);
  return (
    <Panel title="Tags">
      <div class="tags">
        {tags.map(([key, value]) => (
          <span class="tag tag-large" key={key}>
            <a href={href(workspace, kind, [], { text: value || key })}>{value ? `${key}: ${value}` : key}</a>
            {mayWrite(person) && <button type="button" aria-label={`Remove the tag ${key}`} onClick={() => void change({ [key]: null })}><Icon name="close" size={12} /></button>}
          </span>
        ))}
        {!tags.length && <span class="dim">No tags</span>}
      </div>
      {mayWrite(person) && (
        <form class="tag-form" onSubmit={add}>
          <input class="input" aria-label="New tag" placeholder="reviewed=yes" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          <Button submit disabled={!text.trim()}>Add</Button>
        </form>
      )}
    </Panel>
  );
}
