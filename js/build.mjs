// One module and one style sheet, byte for byte the same from the same sources: CI rebuilds them and compares.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

// Names of our own that no message, trait or element has: they may be short.
const own = new RegExp(
  "^(acknowledge|buttons|changed|choose|controls|decision|element|marked|missing|nest|rename|replan|respond|toggles|touched)$",
);

const here = fileURLToPath(new URL(".", import.meta.url));

await build({
  absWorkingDir: here,
  entryPoints: { execution: "src/execution.ts", "execution-style": "src/execution.css" },
  entryNames: "execution",
  outdir: process.argv[2] ?? "../m3nb/static",
  bundle: true,
  minify: true,
  mangleProps: own,
  format: "esm",
  target: ["es2022", "chrome120", "firefox121", "safari17.2"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
