/** The environment as files that other tools take: Dockerfile, requirements.txt, conda.yml. */
import { api, send } from "../../api/client";
import { Button, Choice } from "../../components/Button";
import { Copy } from "../../components/Copy";
import { ErrorNote, Loading } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Panel } from "../../components/Panel";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { save } from "../../lib/save";
import { useWorkspace } from "../../lib/session";
import { type EnvironmentVersion, type Exported, reference } from "./environments";

const FORMATS = [["dockerfile", "Dockerfile"], ["requirements", "requirements.txt"], ["conda", "conda.yml"]] as const;
type Format = (typeof FORMATS)[number][0];

export function GeneratedTab({ environment }: { environment: EnvironmentVersion }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["environments", "export"]);
  return <GeneratedFiles of={`${url} ${environment.hash} ${reference(environment)}`} read={(format) => send<Exported>("POST", url, { environment: reference(environment), format })} />;
}

/** `of` changes with the environment. */
export function GeneratedFiles({ of, read }: { of: string; read: (format: Format) => Promise<Exported> }) {
  const { query } = useAddress();
  const format: Format = FORMATS.find(([id]) => id === query.get("format"))?.[0] ?? "dockerfile";
  const { data, error } = useLoad(`${of} ${format}`, () => read(format));
  return (
    <div class="stack">
      <div><Choice label="Format" value={format} options={FORMATS} onChange={(chosen) => setQuery({ format: chosen === "dockerfile" ? null : chosen }, false)} /></div>
      {error && <ErrorNote error={error} />}
      {!data && !error && <Loading label="Writing the file" />}
      {data && (
        <Panel title={data.file} aside={<><Copy text={data.text} label="Copy the file" /><Button kind="quiet" icon="download" label="Download" onClick={() => save(new Blob([data.text], { type: "text/plain" }), data.file)} /></>}>
          <pre class="code-block log-text-box" tabIndex={0}>{data.text}</pre>
        </Panel>
      )}
      {data && data.notices.length > 0 && <ul class="notices">{[...new Set(data.notices)].map((notice) => <li key={notice}><Icon name="info" size={14} /><span>{notice}</span></li>)}</ul>}
    </div>
  );
}
