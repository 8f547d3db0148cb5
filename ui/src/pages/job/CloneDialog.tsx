/** Submit a job once more with other inputs. */
import { useState } from "preact/hooks";
import { api, type ApiError, send } from "../../api/client";
import type { Job, JobRow } from "../../api/model";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { ErrorNote } from "../../components/Empty";
import { Field, TextField } from "../../components/Field";
import { say } from "../../components/Toast";
import { jobHref } from "../../lib/address";
import { navigate } from "../../lib/router";
import { useWorkspace } from "../../lib/session";
import { cloned, literalInputs, readLiteral } from "./documents";

export function CloneDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const workspace = useWorkspace();
  const inputs = literalInputs(job.spec);
  const [title, setTitle] = useState(job.display_name);
  const [texts, setTexts] = useState<Record<string, string>>(() => Object.fromEntries(inputs.map(([key, value]) => [key, String(value ?? "")])));
  const [nodes, setNodes] = useState(String(job.node_count));
  const [command, setCommand] = useState(String(job.spec.command ?? ""));
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    const changed = inputs.filter(([key, value]) => texts[key] !== String(value ?? ""));
    const document = cloned(job, {
      display_name: title,
      inputs: Object.fromEntries(changed.map(([key, value]) => [key, readLiteral(texts[key] ?? "", value)])),
      node_count: Number(nodes),
      ...(command === job.spec.command ? {} : { command }),
    });
    try {
      const made = await send<JobRow>("POST", api(workspace, ["jobs"]), document);
      say(`Submitted ${made.name}`);
      onClose();
      navigate(jobHref(workspace, made.name));
    } catch (refused) {
      setError(refused as ApiError);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Clone the job" onClose={onClose} wide>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {error && <ErrorNote error={error} />}
          <TextField label="Display name" value={title} onInput={setTitle} />
          {inputs.length > 0 && (
            <fieldset class="fields">
              <legend>Inputs</legend>
              {inputs.map(([key, value]) => (
                <TextField key={key} label={key} mono value={texts[key] ?? ""} onInput={(text) => setTexts({ ...texts, [key]: text })} hint={texts[key] === String(value ?? "") ? undefined : `was ${String(value ?? "empty")}`} />
              ))}
            </fieldset>
          )}
          <Field label="Nodes"><input class="input" type="number" min="1" value={nodes} onInput={(event) => setNodes(event.currentTarget.value)} /></Field>
          <Field label="Command"><textarea class="input mono" rows={3} value={command} spellcheck={false} onInput={(event) => setCommand(event.currentTarget.value)} /></Field>
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={isBusy}>Submit</Button></footer>
      </form>
    </Dialog>
  );
}
