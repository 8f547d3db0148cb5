/** Files by their folders; a folder opens and closes. */
import { useState } from "preact/hooks";
import { bytes } from "../lib/format";
import { Icon } from "./Icon";

export interface TreeFile {
  path: string;
  size_bytes: number;
  /** Beside the name: `changed`, say. */
  note?: string;
}

interface Folder {
  folders: Map<string, Folder>;
  files: { name: string; file: TreeFile }[];
}

const MOST_SHOWN = 500;

function treeOf(files: readonly TreeFile[]): Folder {
  const root: Folder = { folders: new Map(), files: [] };
  for (const file of files) {
    const parts = file.path.split("/");
    const name = parts.pop() ?? "";
    let folder = root;
    for (const part of parts) {
      let next = folder.folders.get(part);
      if (!next) folder.folders.set(part, (next = { folders: new Map(), files: [] }));
      folder = next;
    }
    folder.files.push({ name, file });
  }
  return root;
}

interface Props {
  files: readonly TreeFile[];
  chosen: string;
  hrefOf: (path: string) => string;
}

export function FileTree({ files, chosen, hrefOf }: Props) {
  return <ul class="tree"><Level folder={treeOf(files)} path="" chosen={chosen} hrefOf={hrefOf} /></ul>;
}

function Level({ folder, path, chosen, hrefOf }: { folder: Folder; path: string } & Omit<Props, "files">) {
  return (
    <>
      {[...folder.folders].sort(([a], [b]) => a.localeCompare(b)).map(([name, inner]) => (
        <Branch key={name} name={name} folder={inner} path={`${path}${name}/`} chosen={chosen} hrefOf={hrefOf} />
      ))}
      {folder.files.slice(0, MOST_SHOWN).map(({ name, file }) => (
        <li key={file.path}>
          <a class="tree-line" href={hrefOf(file.path)} aria-current={file.path === chosen ? "true" : undefined}>
            <Icon name="file" size={14} /><span class="tree-name">{name}</span>
            <span class="dim">{file.note ?? bytes(file.size_bytes)}</span>
          </a>
        </li>
      ))}
      {folder.files.length > MOST_SHOWN && <li class="tree-line dim">and {folder.files.length - MOST_SHOWN} more</li>}
    </>
  );
}

function Branch({ name, folder, path, chosen, hrefOf }: { name: string; folder: Folder; path: string } & Omit<Props, "files">) {
  const [isOpen, setOpen] = useState(path.split("/").length < 4 || chosen.startsWith(path));
  return (
    <li>
      <button type="button" class="tree-line" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name={isOpen ? "down" : "right"} size={14} /><span class="tree-name">{name}</span>
      </button>
      {isOpen && <ul><Level folder={folder} path={path} chosen={chosen} hrefOf={hrefOf} /></ul>}
    </li>
  );
}
