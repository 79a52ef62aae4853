import { readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

const file = process.env.M3NB_PLANS;
if (!file)
  throw new Error("M3NB_PLANS must name a file of plans: python tests/form_cases.py FILE (tests/test_js.py does both)");

// A zone with summer time, and not the zone of most machines that run tests.
process.env.TZ = "Europe/Berlin";

export default defineConfig({
  test: {
    environment: "jsdom",
    include: ["test/*.test.ts"],
    provide: { cases: JSON.parse(readFileSync(file, "utf8")) },
  },
});
