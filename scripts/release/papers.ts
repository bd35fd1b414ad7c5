// What tells an auditor what a release is: its parts (SPDX 2.3) and what it was made of (SLSA provenance 1). Neither
// names a time but the commit's, nor the machine.
import type { BundledNode, LockedPackage } from "./node.ts";

/** The commit that a release is made from. */
export interface Commit {
  /** Its hash; with `-dirty` behind it where the files were not those of the commit. */
  id: string;
  /** When it was made, in seconds since 1970. */
  timeS: number;
}

/** What a release is made of. */
export interface Ingredients {
  version: string;
  license: string;
  commit: Commit;
  nodes: readonly BundledNode[];
  /** What made JavaScript of the source. */
  compiler: LockedPackage;
  /** The SHA-256 of package-lock.json. */
  lockHash: string;
  /** The SHA-256 of the program `node` of each architecture. */
  nodeHashes: Readonly<Record<string, string>>;
  /** The SHA-256 of each archive, by its name. */
  archives: Readonly<Record<string, string>>;
}

/** The parts of Node that are programs of others: what Node says of itself, without numbers of interfaces. */
const partsOfNode = () => Object.entries(process.versions).filter(([name]) => !["node", "modules", "napi"].includes(name));

/** The list of parts, as an SPDX document. The parts of Node are those of the Node that this process runs on. */
export function sbom(made: Ingredients): object {
  const ops = part("ops", made.version, made.license, {});
  const nodes = made.nodes.map(({ locked }) => part(locked.name, locked.version, locked.license, { SHA512: locked.sha512 }));
  const within = partsOfNode().map(([name, version]) => part(name, String(version), "NOASSERTION", {}));
  const compiler = part("typescript", made.compiler.version, made.compiler.license, { SHA512: made.compiler.sha512 });
  const related = (spdxElementId: string, relationshipType: string, relatedSpdxElement: string) => {
    return { spdxElementId, relationshipType, relatedSpdxElement };
  };
  return {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: `ops-${made.version}`,
    documentNamespace: `urn:ops:${made.version}:${made.commit.id}`,
    creationInfo: { created: isoTime(made.commit), creators: ["Tool: npm run release"] },
    packages: [ops, ...nodes, ...within, compiler],
    relationships: [
      related("SPDXRef-DOCUMENT", "DESCRIBES", ops.SPDXID),
      ...nodes.map((node) => related(ops.SPDXID, "CONTAINS", node.SPDXID)),
      ...nodes.flatMap((node) => within.map((one) => related(node.SPDXID, "CONTAINS", one.SPDXID))),
      related(compiler.SPDXID, "BUILD_TOOL_OF", ops.SPDXID),
    ],
  };
}

function part(name: string, version: string, license: string, checksums: Record<string, string>) {
  return {
    name,
    SPDXID: `SPDXRef-${name.replaceAll(/[^A-Za-z0-9.-]/g, "-")}`,
    versionInfo: version,
    downloadLocation: "NOASSERTION",
    filesAnalyzed: false,
    licenseConcluded: license,
    licenseDeclared: license,
    copyrightText: "NOASSERTION",
    checksums: Object.entries(checksums).map(([algorithm, checksumValue]) => ({ algorithm, checksumValue })),
  };
}

/** What the archives were made of, and how, as an in-toto statement. */
export function provenance(made: Ingredients): object {
  const locked = ({ name, version, sha512 }: LockedPackage) => ({ uri: `pkg:npm/${name}@${version}`, digest: { sha512 } });
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: Object.entries(made.archives).map(([name, sha256]) => ({ name, digest: { sha256 } })),
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: "urn:ops:npm-run-release",
        externalParameters: { version: made.version, commit: made.commit.id, committed: isoTime(made.commit) },
        resolvedDependencies: [
          { name: "package-lock.json", digest: { sha256: made.lockHash } },
          ...made.nodes.map((node) => locked(node.locked)),
          ...made.nodes.map(({ architecture }) => ({
            name: `node/bin/node of linux-${architecture}`,
            digest: { sha256: made.nodeHashes[architecture] },
          })),
          locked(made.compiler),
        ],
      },
      runDetails: { builder: { id: "urn:ops:npm-run-release", version: { node: process.versions.node } } },
    },
  };
}

/** When a commit was made. */
export function isoTime({ timeS }: Commit): string {
  return new Date(timeS * 1000).toISOString().replace(".000Z", "Z");
}
