import { deflateRawSync } from 'node:zlib';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { fileInTar, fileInZip, findProgram, setupHelm } from '../../scripts/setup-helm.mjs';

afterEach(() => {
  vi.unstubAllEnvs();
});

it('downloads nothing if turned off, and names the missing programs with the reason', async () => {
  vi.stubEnv('PATH', '');
  vi.stubEnv('SMART_ROUTER_SETUP', 'off');
  const lines: string[] = [];
  const { installed, missing } = await setupHelm((line) => lines.push(line));
  // Programs of an earlier download are still used.
  const absent = ['helm', 'kubectl'].filter((name) => findProgram(name) === undefined);
  const reason = 'not installed, and SMART_ROUTER_SETUP is off';
  expect(installed).toEqual([]);
  expect(missing).toEqual(absent.map((name) => ({ name, reason })));
  const skipped = 'the tests of the Helm chart and of the manifests will be skipped';
  expect(lines.filter((line) => line.startsWith('Without '))).toEqual(
    absent.map((name) => `Without ${name}, ${skipped}: ${reason}.`),
  );
});

interface Packed {
  name: string;
  content: Buffer;
  method: 0 | 8;
}

/** As zip programs write it: local headers with an extra field, the directory, its end. Checksums are left out. */
function zipOf(files: readonly Packed[]): Buffer {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, content, method } of files) {
    const data = method === 8 ? deflateRawSync(content) : content;
    const local = Buffer.alloc(30);
    local.write('PK\x03\x04', 'latin1');
    local.writeUInt16LE(method, 8);
    local.writeUInt16LE(name.length, 26);
    local.writeUInt16LE(4, 28);
    const central = Buffer.alloc(46);
    central.write('PK\x01\x02', 'latin1');
    central.writeUInt16LE(method, 10);
    central.writeUInt32LE(data.length, 20);
    central.writeUInt32LE(content.length, 24);
    central.writeUInt16LE(name.length, 28);
    central.writeUInt32LE(offset, 42);
    const whole = Buffer.concat([local, Buffer.from(name), Buffer.alloc(4), data]);
    locals.push(whole);
    directory.push(central, Buffer.from(name));
    offset += whole.length;
  }
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, ...directory, end]);
}

describe('a zip file', () => {
  const content = Buffer.from('helm '.repeat(1000));
  const zip = zipOf([
    { name: 'first', content: Buffer.from('as it is'), method: 0 },
    { name: 'helm/helm', content, method: 8 },
  ]);

  it('is read, stored or compressed', () => {
    expect(fileInZip(zip, 'first').toString()).toBe('as it is');
    expect(fileInZip(zip, 'helm/helm')).toEqual(content);
  });

  it('without the file, or in another format, is an error', () => {
    expect(() => fileInZip(zip, 'helm')).toThrow('helm is not in the archive');
    expect(() => fileInZip(Buffer.from('hello'), 'helm')).toThrow('not a zip file');
  });
});

describe('a tar file', () => {
  const file = (name: string, text: string) => {
    const header = Buffer.alloc(512);
    header.write(name);
    header.write(text.length.toString(8).padStart(11, '0'), 124);
    return Buffer.concat([header, Buffer.from(text), Buffer.alloc((512 - (text.length % 512)) % 512)]);
  };
  const tar = Buffer.concat([file('a', 'x'.repeat(512)), file('package/b', 'wanted'), Buffer.alloc(1024)]);

  it('is read', () => {
    expect(fileInTar(tar, 'package/b').toString()).toBe('wanted');
    expect(fileInTar(tar, 'a')).toHaveLength(512);
  });

  it('without the file is an error', () => {
    expect(() => fileInTar(tar, 'b')).toThrow('b is not in the tarball');
  });
});
