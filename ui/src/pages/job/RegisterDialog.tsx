/** Keep a job's output as a version of a model. */
import { useState } from "preact/hooks";
import { api, type ApiError, get, send } from "../../api/client";
import type { FileEntry, Job, Page } from "../../api/model";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Select, TextField } from "../../components/Field";
import { say } from "../../components/Toast";
import { useLoad } from "../../lib/query";
import { useWorkspace } from "../../lib/session";

export function RegisterDialog({ job, onClose, onDone }: { job: Job; onClose: () => void; onDone: () => void }) {
  const workspace = useWorkspace();
  const files = useLoad(api(workspace, ["jobs", job.name, "files"]), (signal) => get<Page<FileEntry>>(api(workspace, ["jobs", job.name, "files"]), signal));
  const outputs = useLoad(api(workspace, ["jobs", job.name, "outputs"]), (signal) => get<Page<FileEntry>>(api(workspace, ["jobs", job.name, "outputs"]), signal));
  return (
    <Dialog title="Register a model" onClose={onClose}>
      {!files.data || !outputs.data ? <Loading /> : <Form job={job} choices={choicesOf(job, files.data.value, outputs.data.value)} onClose={onClose} onDone={onDone} />}
    </Dialog>
  );
}

/** Files and folders below `outputs/`, then named outputs, as paths that registration takes. */
export function choicesOf(job: Job, files: readonly FileEntry[], outputs: readonly FileEntry[]): (readonly [string, string])[] {
  const own = files.map((file) => file.path).filter((path) => path.startsWith("outputs/"));
  const folders = new Set<string>();
  for (const path of own) {
    const parts = path.split("/");
    for (let depth = 1; depth < parts.length; depth += 1) folders.add(parts.slice(0, depth).join("/"));
  }
  const address = (path: string): string => `azureml://jobs/${job.name}/outputs/artifacts/paths/${path}`;
  const named = [...new Set(outputs.map((file) => file.output ?? ""))].filter(Boolean);
  return [
    ...own.map((path) => [address(path), path] as const),
    ...[...folders].sort().map((path) => [address(`${path}/`), `${path}/ (the folder)`] as const),
    ...named.map((name) => [`azureml://jobs/${job.name}/outputs/${name}`, `output ${name}`] as const),
  ];
}

function Form({ job, choices, onClose, onDone }: { job: Job; choices: readonly (readonly [string, string])[]; onClose: () => void; onDone: () => void }) {
  const workspace = useWorkspace();
  const [name, setName] = useState(job.experiment_name.replace(/[^\w.-]+/g, "-"));
  const [path, setPath] = useState(choices[0]?.[0] ?? "");
  const [error, setError] = useState<ApiError | null>(null);
  if (!choices.length) {
    return <Empty title="This job wrote no outputs" command="torch.save(model.state_dict(), 'outputs/model.pt')">Files in ./outputs are kept and can become a model.</Empty>;
  }
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      const made = await send<{ name: string; version: string }>("POST", api(workspace, ["models"]), { name, path });
      say(`Registered ${made.name}:${made.version}`);
      onClose();
      onDone();
    } catch (refused) {
      setError(refused as ApiError);
    }
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <div class="dialog-body">
        {error && <ErrorNote error={error} />}
        <TextField label="Name" value={name} onInput={setName} required hint="An existing name gets a new version." />
        <Select label="Content" value={path} options={choices} onChange={setPath} hidden={false} />
      </div>
      <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!name}>Register</Button></footer>
    </form>
  );
}
