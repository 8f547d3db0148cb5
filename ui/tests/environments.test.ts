import { describe, expect, it } from "vitest";
import { type Environment, find, packagesOf, pythonOf, reference, splitPackage } from "../src/pages/environments/environments";

const one = (name: string, more: Partial<Environment> = {}): Environment => ({ name, version: "1", description: "", status: "registered", archived: false, tags: {}, ...more });
const acpt = one("acpt-pytorch-2.13-cpu", { status: "curated", description: "PyTorch with DeepSpeed", packages: ["torch==2.13.0+cpu", "scikit-learn==1.8.0"] });
const own = one("vision", { conda_file: { dependencies: ["python=3.11", "pip", { pip: ["six==1.17.0", "scikit_learn"] }] } });

describe("finding an environment", () => {
  const names = (text: string): string[] => find([acpt, own], text).map(({ environment }) => environment.name);

  it("looks at names, whatever their case", () => {
    expect(names("ACPT")).toEqual(["acpt-pytorch-2.13-cpu"]);
    expect(names("")).toHaveLength(2);
  });

  it("looks at packages, also of a definition that was never built, and says which", () => {
    expect(names("scikit-learn")).toEqual(["acpt-pytorch-2.13-cpu", "vision"]);
    expect(find([own], "six")[0]?.packages).toEqual(["six==1.17.0"]);
    expect(find([acpt], "deepspeed")[0]?.packages).toEqual([]);
  });

  it("wants every word", () => {
    expect(names("acpt torch")).toEqual(["acpt-pytorch-2.13-cpu"]);
    expect(names("acpt six")).toEqual([]);
  });
});

describe("what an environment holds", () => {
  it("is what its definition says while it has no packages of its own", () => {
    expect(packagesOf(own)).toEqual(["python=3.11", "pip", "six==1.17.0", "scikit_learn"]);
    expect(pythonOf(own)).toBe("3.11");
    expect(packagesOf(one("x", { conda_file: "conda.yml" }))).toEqual([]);
  });

  it("splits a package's name from its version", () => {
    expect(splitPackage("torch==2.13.0+cpu")).toEqual(["torch", "2.13.0+cpu"]);
    expect(splitPackage("numpy=1.26")).toEqual(["numpy", "1.26"]);
    expect(splitPackage("ray[default]>=2")).toEqual(["ray[default]", ">=2"]);
    expect(splitPackage("<script>")).toEqual(["<script>", ""]);
  });

  it("is named as jobs name it", () => {
    expect(reference(acpt)).toBe("acpt-pytorch-2.13-cpu");
    expect(reference(own)).toBe("azureml:vision:1");
  });
});
