/** Build the page into the Python package.
 *
 * `npm run dev` serves the sources and passes requests on to the server of TORCHYARD_HOME.
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { defineConfig, type ProxyOptions } from "vite";
import { packaged } from "./packaged.ts";

const OUTPUT = join(import.meta.dirname, "../src/torchyard/web/assets");

/** To the server of this home, as its owner. */
function toServer(): ProxyOptions {
  const home = process.env.TORCHYARD_HOME ?? join(homedir(), ".torchyard");
  const file = join(home, "server.json");
  if (!existsSync(file)) return { target: "http://127.0.0.1:1" };
  const token = readFileSync(join(home, "token"), "utf8").trim();
  return {
    target: JSON.parse(readFileSync(file, "utf8")).url,
    changeOrigin: true,
    headers: { authorization: `Bearer ${token}` },
  };
}

export default defineConfig({
  base: "/ui/",
  plugins: [packaged(OUTPUT, ["@fontsource-variable/inter", "preact", "uplot"])],
  server: { proxy: { "/v1": toServer(), "/api": toServer() } },
  build: {
    outDir: OUTPUT,
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
});
