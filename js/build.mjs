// One module and one style sheet, byte for byte the same from the same sources: CI rebuilds them and compares.
import { build } from "esbuild";
import { minify } from "terser";
import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { join, resolve } from "node:path";

// Names of our own that no message, trait or element has: they may be short.
const own = new RegExp(
  "^(acknowledge|bad|buttons|changed|choose|controls|decision|draw|element|fold|group|late|link|main|mark|marked|missing|nest|" +
    "nested|read|rename|replan|respond|tick|toggles|touched|update)$",
);

const here = fileURLToPath(new URL(".", import.meta.url));
const folder = resolve(here, process.argv[2] ?? "../m3nb/static");

const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: { execution: "src/execution.ts", "execution-style": "src/execution.css" },
  entryNames: "execution",
  outdir: folder,
  bundle: true,
  minify: true,
  mangleProps: own,
  format: "esm",
  target: ["es2022", "chrome120", "firefox121", "safari17.2"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  write: false,
});

/** Our own custom properties, one letter each: nobody else sets or reads them. */
function shorter(style) {
  const names = [...new Set(style.match(/(?<=[;{])--[a-z]+(?=:)/g))].sort();
  const short = new Map(names.map((name, at) => [name, "--" + String.fromCharCode(97 + at)]));
  return style.replace(/--[a-z]+(?![\w-])/g, (name) => short.get(name) ?? name).replace(/(?<=[:,]) /g, "");
}

async function smaller({ path, text }) {
  if (path.endsWith(".css")) return shorter(text);
  const { code } = await minify(text, {
    module: true,
    ecma: 2020,
    compress: { passes: 3, unsafe_arrows: true },
    format: { comments: false, ecma: 2020 },
  });
  return code + "\n";
}

await mkdir(folder, { recursive: true });
for (const file of outputFiles) await writeFile(join(folder, file.path.split(/[\\/]/).at(-1)), await smaller(file));
