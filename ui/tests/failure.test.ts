import { describe, expect, test } from "vitest";
import { withoutFolder } from "../src/pages/job/Failure";

describe("a traceback", () => {
  test("names the script's files as the snapshot does, and others whole", () => {
    const text = '  File "/data/yard/scratch/c021/node-1/work/src/train.py", line 3, in main\n  File "/usr/lib/python3.11/json.py", line 9';
    expect(withoutFolder(text)).toBe('  File "src/train.py", line 3, in main\n  File "/usr/lib/python3.11/json.py", line 9');
  });
});
