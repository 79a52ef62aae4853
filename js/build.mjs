// One module and one style sheet, byte for byte the same from the same sources: CI rebuilds them and compares.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));

await build({
  absWorkingDir: here,
  entryPoints: { execution: "src/execution.ts", "execution-style": "src/execution.css" },
  entryNames: "execution",
  outdir: process.argv[2] ?? "../m3nb/static",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome120", "firefox121", "safari17.2"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
