/** Build the notebook's widget into the Python package: one module, its looks in it. */
import { join } from "node:path";
import { defineConfig } from "vite";
import { packaged } from "./packaged.ts";

const OUTPUT = join(import.meta.dirname, "../src/torchyard/notebook/assets");

export default defineConfig({
  plugins: [packaged(OUTPUT, ["preact", "uplot"])],
  publicDir: false,
  build: {
    outDir: OUTPUT,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rollupOptions: {
      input: join(import.meta.dirname, "src/widget/main.tsx"),
      preserveEntrySignatures: "strict",
      output: { entryFileNames: "widget.js", format: "es" },
    },
  },
});
