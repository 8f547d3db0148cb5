/** Files of a version, and one of them as far as it can be shown.
 *
 * Always: the page reads the beginning of a file and says itself what it is, by its content; an
 * image is shown from its bytes, so that no address gives a file that a browser would run.
 */
import { useEffect, useState } from "preact/hooks";
import { api, fileUrl, get, range, request } from "../../api/client";
import type { FileEntry, Page, Preview } from "../../api/model";
import { Button } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { PreviewContent } from "../../components/FilePreview";
import { FileTree } from "../../components/FileTree";
import { Panel } from "../../components/Panel";
import { href } from "../../lib/address";
import { bytes, plural } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { useAddress } from "../../lib/router";
import { useWorkspace } from "../../lib/session";
import { HEAD_BYTES, previewOf } from "./preview";
import { type Asset, type AssetKind } from "./types";

export function useFiles(kind: AssetKind, asset: Asset) {
  const workspace = useWorkspace();
  const url = api(workspace, [kind, asset.name, "versions", String(asset.version), "files"]);
  return useLoad(url, (signal) => get<Page<FileEntry>>(url, signal));
}

export function AssetFiles({ kind, asset }: { kind: AssetKind; asset: Asset }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const { data, error } = useFiles(kind, asset);
  if (error && !data) return <ErrorNote error={error} />;
  if (!data) return <Loading />;
  const files = data.value;
  if (!files.length) return <Empty title="No files listed">{kind === "models" ? "This version has only the address of its files." : "There is nothing at its path."}</Empty>;
  const path = query.get("path") ?? (files.length === 1 ? files[0]?.path ?? "" : "");
  const file = files.find((each) => each.path === path);
  const size = files.reduce((sum, each) => sum + each.size_bytes, 0);
  const address = (chosen: string): string => href(workspace, kind, [asset.name, String(asset.version)], { tab: "files", path: chosen });
  return (
    <div class="browser">
      <div class="browser-side">
        <Panel title="Files" aside={`${plural(files.length, "file")}, ${bytes(size)}`}><FileTree files={files} chosen={path} hrefOf={address} /></Panel>
      </div>
      <div class="browser-main">
        {file ? <AssetFile key={path} url={fileUrl(workspace, [kind, asset.name, "versions", String(asset.version), "files"], path)} file={file} />
          : path ? <Empty title="There is no such file">Choose one of the list.</Empty>
            : <Empty title="Choose a file">Texts, tables and images are shown here.</Empty>}
      </div>
    </div>
  );
}

function AssetFile({ url, file }: { url: string; file: FileEntry }) {
  const { path, size_bytes: size } = file;
  // A version's files don't change; a server refuses a range of an empty one.
  const { data, error } = useLoad<Preview>(`preview/${url}`, async (signal) =>
    previewOf(path, size ? (await range(url, 0, HEAD_BYTES, signal)).bytes : new Uint8Array(), size));
  const image = useImage(data?.kind === "image" ? url : null, data?.media_type ?? "");
  return (
    <section class="preview" aria-label={path}>
      <header class="preview-head">
        <h3 class="mono">{path}</h3>
        <span class="dim">{bytes(size)}</span>
        <Button icon="download" href={url} download={path.split("/").at(-1) ?? "file"}>Download</Button>
      </header>
      {error && <ErrorNote error={error} />}
      {!data && !error && <Loading />}
      {data && size === 0 && <p class="preview-none dim">This file is empty.</p>}
      {data && size > 0 && (data.kind !== "image" || image) && <PreviewContent data={data} image={image} name={path} />}
      {data?.truncated && <p class="dim preview-foot">Only the beginning is shown.</p>}
    </section>
  );
}

/** An address of the image's bytes in this page; empty until they are there. */
function useImage(url: string | null, type: string): string {
  const [made, setMade] = useState("");
  useEffect(() => {
    if (url === null) return;
    const abort = new AbortController();
    let address = "";
    const read = async (): Promise<void> => {
      const content = await (await request(url, { signal: abort.signal })).arrayBuffer();
      address = URL.createObjectURL(new Blob([content], { type }));
      if (abort.signal.aborted) URL.revokeObjectURL(address);
      else setMade(address);
    };
    read().catch(() => {});
    return () => {
      abort.abort();
      if (address) URL.revokeObjectURL(address);
      setMade("");
    };
  }, [url, type]);
  return made;
}
