/** A request tried from the page: the server sends it as a caller of the endpoint would. */
import { useState } from "preact/hooks";
import { api, send } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Copy } from "../../components/Copy";
import { Field, Select } from "../../components/Field";
import { Panel } from "../../components/Panel";
import { complain } from "../../components/Toast";
import { useWorkspace } from "../../lib/session";
import { curl, type Endpoint } from "./endpoints";

interface Answer {
  status: number;
  content: string;
  milliseconds: number;
}

export function TryPanel({ endpoint, deployments }: { endpoint: Endpoint; deployments: readonly string[] }) {
  const workspace = useWorkspace();
  const [text, setText] = useState('{"data": [[1, 2, 3]]}');
  const [deployment, setDeployment] = useState("");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [busy, setBusy] = useState(false);
  const ask = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    send<Answer>("POST", api(workspace, ["online-endpoints", endpoint.name, "try"]), { request: text, deployment })
      .then(setAnswer, complain)
      .finally(() => setBusy(false));
  };
  return (
    <Panel title="Try a request" aside={<Copy text={curl(endpoint)} label="Copy a line of curl" />}>
      <form class="stack" onSubmit={ask}>
        <Field label="Request, as JSON"><textarea class="input mono" rows={4} value={text} spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} /></Field>
        <div class="toolbar">
          <Select label="Deployment" value={deployment} options={[["", "By traffic"], ...deployments.map((name) => [name, name] as const)]} onChange={setDeployment} />
          <Button kind="primary" submit disabled={busy}>Send</Button>
          {answer && <Badge tone={answer.status < 400 ? "green" : "red"}>{answer.status}</Badge>}
          {answer && <span class="dim number">{answer.milliseconds} ms</span>}
        </div>
        {answer && <pre class="code-block" aria-label="Answer" tabIndex={0}>{answer.content || "(empty)"}</pre>}
      </form>
    </Panel>
  );
}
