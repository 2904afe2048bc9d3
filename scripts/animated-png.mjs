// Joins PNG pictures of one size into one animated PNG (chunks acTL, fcTL, fdAT), which every browser shows.
import { crc32 } from 'node:zlib';

const signatureBytes = 8;

/** @param {Buffer} png @returns {{ type: string, data: Buffer }[]} */
function chunksOf(png) {
  const chunks = [];
  for (let at = signatureBytes; at < png.length; ) {
    const length = png.readUInt32BE(at);
    chunks.push({
      type: png.toString('latin1', at + 4, at + 8),
      data: png.subarray(at + 8, at + 8 + length),
    });
    at += 12 + length;
  }
  return chunks;
}

/** @param {string} type @param {Buffer} data */
function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}

/** @param {readonly number[]} values */
function numbers(...values) {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [i, value] of values.entries()) bytes.writeUInt32BE(value, i * 4);
  return bytes;
}

/**
 * Returns an animation in an endless loop, each picture shown for `ms`.
 * @param {readonly Buffer[]} pictures
 * @param {number} ms
 */
export function animated(pictures, ms) {
  const [first] = pictures;
  if (!first) throw new Error('no pictures given');
  const header = chunksOf(first).find(({ type }) => type === 'IHDR')?.data;
  if (!header) throw new Error('not a PNG file');
  let order = 0;
  const parts = [
    first.subarray(0, signatureBytes),
    chunk('IHDR', header),
    chunk('acTL', numbers(pictures.length, 0)),
  ];
  for (const [i, picture] of pictures.entries()) {
    const chunks = chunksOf(picture);
    if (!chunks[0]?.data.equals(header)) throw new Error(`picture ${i + 1} has another size or kind`);
    const delay = Buffer.alloc(6);
    delay.writeUInt16BE(ms, 0);
    delay.writeUInt16BE(1000, 2);
    parts.push(
      chunk(
        'fcTL',
        Buffer.concat([numbers(order++, header.readUInt32BE(0), header.readUInt32BE(4), 0, 0), delay]),
      ),
    );
    for (const { type, data } of chunks) {
      if (type !== 'IDAT') continue;
      parts.push(i === 0 ? chunk('IDAT', data) : chunk('fdAT', Buffer.concat([numbers(order++), data])));
    }
  }
  parts.push(chunk('IEND', Buffer.alloc(0)));
  return Buffer.concat(parts);
}
