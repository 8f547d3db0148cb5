/** What stands beside files that are built into the Python package, and what its tests check them by:
 * `manifest.json` with the hash of the sources and the sizes of files, `licenses.txt` of what is
 * bundled.
 */
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin } from "vite";

const HERE = import.meta.dirname;
const TEXT = /\.(js|css|html|svg|txt)$/;
/** What a build depends on; tests/web_page/test_built_assets.py reads the same. */
const SOURCES = [
  "index.html", "package-lock.json", "packaged.ts", "public", "src", "tsconfig.json", "vite.config.ts",
  "vite.widget.config.ts",
];

function filesUnder(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).sort().flatMap((name) => filesUnder(join(path, name)));
}

/** sha256 over `<path>\0<sha256 of the content>\n`, ordered by path. */
function hashOfSources(): string {
  const files = SOURCES.flatMap((name) => filesUnder(join(HERE, name)));
  const paths = files.map((file) => relative(HERE, file)).sort();
  const lines = paths.map((path) => {
    const content = createHash("sha256").update(readFileSync(join(HERE, path))).digest("hex");
    return `${path}\0${content}\n`;
  });
  return createHash("sha256").update(lines.join("")).digest("hex");
}

function licenses(bundled: readonly string[]): string {
  return bundled.map((name) => {
    const folder = join(HERE, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
  }).join(`\n${"-".repeat(80)}\n\n`);
}

/** `output`: the folder that is built; `bundled`: the packages in it. */
export function packaged(output: string, bundled: readonly string[]): Plugin {
  return {
    name: "packaged",
    apply: "build",
    closeBundle() {
      writeFileSync(join(output, "licenses.txt"), licenses(bundled));
      const files: Record<string, { bytes: number; gzip_bytes?: number }> = {};
      for (const file of filesUnder(output)) {
        const content = readFileSync(file);
        const name = relative(output, file);
        files[name] = { bytes: content.length };
        if (TEXT.test(name)) files[name].gzip_bytes = gzipSync(content, { level: 9 }).length;
      }
      const manifest = { sources_sha256: hashOfSources(), files };
      writeFileSync(join(output, "manifest.json"), `${JSON.stringify(manifest, null, 1)}\n`);
    },
  };
}
